"""Write the reference pages from the tables they describe.

    python docs/generate.py

A test compares each page with what this would write, so that none can drift.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import msgspec  # noqa: E402 - the modules below are found through the path above

from adapters.command.agent import _Options as CommandOptions  # noqa: E402
from adapters.openai.chat import _Options as OpenAIOptions  # noqa: E402
from adapters.tools.shell import _Options as ShellOptions  # noqa: E402
from agentloop._canonical import encode_text  # noqa: E402
from agentloop.checks import CHECKS  # noqa: E402
from agentloop.context.bm25 import Bm25Retriever  # noqa: E402
from agentloop.context.config import (  # noqa: E402
    ContextConfig,
    HistoryOptions,
    MemoryOptions,
    RetrievalOptions,
)
from agentloop.context.memory import InProcessMemory, MemoryRecord  # noqa: E402
from agentloop.context.packer import ContextBudget  # noqa: E402
from agentloop.context.retrieval import Passage  # noqa: E402
from agentloop.context.sections import Section  # noqa: E402
from agentloop.context.standard import Found, standard_sections  # noqa: E402
from agentloop.messages import Message  # noqa: E402
from agentloop.orchestrator.config import Budget, RetryPolicy, RunConfig  # noqa: E402
from agentloop.orchestrator.phases import ORCHESTRATION, SELF_LOOPS  # noqa: E402
from agentloop.outcome import REMEDIES  # noqa: E402
from agentloop.ports import AssemblyRequest, ToolSpec  # noqa: E402
from agentloop.tasks import task_schema  # noqa: E402
from graphstate.adaptogen import Adaptogen  # noqa: E402
from graphstate.cli.commands import EVERYWHERE, GROUPS, Command  # noqa: E402
from graphstate.event_types import EVENT_TYPES  # noqa: E402
from graphstate.guards import CONTEXT, EXAMPLES, GRAMMAR, OPERATORS  # noqa: E402
from graphstate.guards.language import GUARD_BUDGET, MAX_CACHED, MAX_DEPTH, MAX_LENGTH  # noqa: E402
from graphstate.guards.values import CHARACTERS_PER_UNIT, PAIRS_PER_UNIT, PER_PAIR  # noqa: E402
from graphstate.manifest import VERBS, describe  # noqa: E402

__all__ = ("PAGES", "adaptogen", "graph_verbs", "orchestrator")

NOTE = "<!-- Written by docs/generate.py from the program's own tables; change those. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = (str(cell).replace("|", "\\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


# ------------------------------------------------------------------------------ the command

_ADAPTOGEN = """
# The `adaptogen` command

{note}

Every command is one verb of the graph, one process, one transaction. `adaptogen help` lists the
commands, `adaptogen help COMMAND` shows one of them.

```console
$ adaptogen remember research --payload '{{"topic": "caches"}}'
$ adaptogen remember draft
$ adaptogen link research draft
$ adaptogen cursor research
$ adaptogen step --reward 1
$ adaptogen status
```

## Which file

`--db FILE`, else the nearest `.agentloop/state.db` in this folder or one above it, else
`./adaptogen.db`. Only `remember` and `set-tunable` make a file that does not exist. Commands that
read open the file read-only and change no byte of it. Those that write are durable against power
loss.

## Words, flags, values

Flags stand anywhere, as `--name value` or `--name=value`, also spelled in camel case
(`--edgeId`). `--` ends the flags. A value may begin with `-`. JSON is given as text (at most
1 MiB), as `@FILE` or as `-` for standard input (at most 64 MiB); keys that stand twice, numbers
that are not finite and `null` itself are refused.

## What comes out

An answer is indented JSON, or one line with `--json`; `status`, `render` and `history` are text
without it. Characters that could steer a terminal are shown as escapes.

| exit code | means |
|---|---|
| 0 | done, also for a transition that was denied |
| 1 | a typed failure, as `{{"code", "message", "hint", "details"}}` on standard output; `get` of a node that does not exist; `verify` of a broken log |
| 2 | the command line is wrong: one line on standard error, nothing written |
| 130, 143 | interrupted, terminated; the file was closed |

## Flags of every command

{everywhere}
"""


def adaptogen() -> str:
    """The page about the command line."""
    everywhere = table(("flag", "meaning"), ((f"`{flag.shown}`", flag.help) for flag in EVERYWHERE))
    lines = [_ADAPTOGEN.strip().format(note=NOTE, everywhere="\n".join(everywhere)), ""]
    for group, commands in GROUPS.items():
        lines += [f"## To {group}" if group != "durability" else "## Durability and settings", ""]
        for command in commands:
            lines += _command(command)
    return "\n".join(lines).rstrip() + "\n"


def _command(command: Command) -> list[str]:
    lines = [f"### {command.name}", "", f"{command.help[0].upper()}{command.help[1:]}.", ""]
    lines += ["```text", command.usage, "```", ""]
    rows = [(f"`{word.shown}`", word.help) for word in command.words]
    rows += [(f"`{flag.shown}`", flag.help) for flag in command.all_flags]
    return [*lines, *table(("argument", "meaning"), rows), ""] if rows else lines


# ------------------------------------------------------------------------------ the verbs

_VERBS = """
# The graph's verbs

{note}

`Adaptogen.open(path)` gives a graph; these are its verbs. One that *changes* answers with `Ok` or
`Fail` (a value with code, message and hint, never an exception) and is one transaction; `unit`
joins several. One that *reads* answers with plain values, or with `Ok` or `Fail` where its type
says `Result`. `cause=` makes a change happen once: a second call with the same text changes
nothing and gets the first answer, marked `repeated`.
"""


def graph_verbs() -> str:
    """The page about the facade."""
    manifest = describe()
    lines = [_VERBS.strip().format(note=NOTE), ""]
    for family, names in VERBS.items():
        lines += [f"## {family.__name__}", ""]
        for name in names:
            lines += _verb(name, getattr(Adaptogen, name))
    codes = ((f"`{code}`", hint) for code, hint in manifest["errorHints"].items())
    lines += ["## Failures", "", *table(("code", "what to do"), codes), ""]
    lines += ["## Tunables", "", manifest["tunables"]["summary"], ""]
    lines += [*table(("key", "default", "accepted", "meaning"), _tunables(manifest["tunables"])), ""]
    lines += ["## Patterns", "", manifest["patterns"].pop("summary"), ""]
    for name, code in manifest["patterns"].items():
        lines += [f"{name.replace('_', ' ').capitalize()}:", "", "```py", *code, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _tunables(tunables: Mapping[str, Any]) -> Iterable[Sequence[object]]:
    for key, default in tunables["defaults"].items():
        yield f"`{key}`", f"`{encode_text(default)}`", tunables["ranges"][key], tunables["meaning"][key]


def _verb(name: str, method: Any) -> list[str]:
    lines = [f"### {name}", "", "```py", _signature(name, method), "```", ""]
    lines += [f"*{method.verb.capitalize()}.*", ""]
    return [*lines, *_paragraphs(inspect.getdoc(method) or ""), ""]


def _signature(name: str, method: Any) -> str:
    """The signature in one form for every Python version."""
    signature = inspect.signature(method)
    shown: list[str] = []
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{parameter.name}: {parameter.annotation}{default}")
    line = f"{name}({', '.join(shown)}) -> {signature.return_annotation}"
    if len(line) <= 100:
        return line
    return "\n".join((f"{name}(", *(f"    {part}," for part in shown), f") -> {signature.return_annotation}"))


def _paragraphs(doc: str) -> Iterable[str]:
    """A docstring's lines; its sections become lists."""
    listing = False
    for line in doc.splitlines():
        text = line.strip()
        if line and not line.startswith(" "):
            listing = text in ("Args:", "Raises:", "Returns:")
            yield f"**{text.removesuffix(':')}**" if listing else text
            if listing:
                yield ""
        elif listing and line.startswith("    ") and not line.startswith("     "):
            term, colon, rest = text.partition(": ")
            yield f"- `{term}`: {rest}" if colon else f"- {text}"
        elif listing and text:
            yield f"  {text}"
        else:
            yield text


# ------------------------------------------------------------------------------ the log

_EVENTS = """
# The log of a graph

{note}

The stream `graph` of a file holds these facts, in the table `event`. Nodes, edges, zones, cursors,
statistics and tunables are what they add up to: folded again, they give the same graph. `history`
lists the newest facts, `changes` those behind a place, `subscribe` calls a function with each,
`adaptogen watch` shows them as they come. A type that is not listed is kept and changes nothing.

Each row has a number that counts from 1, the time in milliseconds, an id, the actor and how far it
is trusted, the cause the call was given, the payload as JSON, and the hash that chains it to the
row before. A `?` marks a key of the payload that may be absent.
"""


def events() -> str:
    """The page about the facts that are stored."""
    lines = [_EVENTS.strip().format(note=NOTE), ""]
    for name, row in EVENT_TYPES.items():
        lines += [f"## {name}", "", f"{row.effect[0].upper()}{row.effect[1:]}.", ""]
        lines += [*table(("key", "holds"), ((f"`{key}`", text) for key, text in row.payload.items())), ""]
    return "\n".join(lines).rstrip() + "\n"


# ------------------------------------------------------------------------------- task files

_TASK = """
# Task files

{note}

A task is a folder with a `task.toml`. `agentloop new NAME` makes one, `agentloop run FOLDER` runs it,
`agentloop run FOLDER/OTHER.toml` runs another file of the folder. Relative names start at the
folder of the file. An unknown key is an error that names the nearest known one; everything is
checked before anything is begun. The JSON Schema is
[`agentloop/tasks/task.schema.json`](../../agentloop/tasks/task.schema.json): an editor that is told of it
completes keys, for instance by this first line, with the path from the task to the schema:

```toml
#:schema ../../agentloop/tasks/task.schema.json
```

`--set KEY=VALUE` overrides a setting for one run, as `--set limits.max_iterations=3`.

How a task goes on: the agent has its turn; then the checks are looked at. If all pass, the task
is done. If not, and `max_retries` is not spent, the agent is asked again and told why. Once it is
spent, or when there are no checks, the evaluator decides: SUCCESS, FAILURE or RUNNING, which is
another try. `max_iterations` ends it in any case.
"""

_TASK_END = """
## Adapters

| adapter | acts as | options |
|---|---|---|
| `"scripted"` | recorded turns | `file`, or short `scripted = FILE` |
| `"openai"` | [any server that speaks Chat Completions](../how-to/real-model.md) | {openai} |
| `"command"` | [any command-line agent](../how-to/command-line-agent.md) | {command} |
| `"none"` | an evaluator that never decides, so that only checks and limits end the run | |
| `"python:module:factory"` | code of yours: `factory(options, context)` returns a turn function or a duplex; the module may lie beside the task file | yours |

An installed package adds an adapter by an entry point of the group `agentloop.adapters`, a tool by one
of `agentloop.tools`.

## Tools

`files` gives the agent `fs__read`, `fs__list`, `fs__write`, `fs__edit` and `fs__delete`, none of which leads out of
the workspace. `allow_shell` gives it `shell`, which runs a command in the workspace as you: it is not
confined there. A command finds the Python that runs `agentloop` as `python3`, and no keys in its
environment. Options of `tools.shell`: {shell}.

## Checks

A check is `kind:argument`, looked at after each turn of the agent. `!` before it demands the opposite;
`tool/` before it looks only at the calls of that tool.

{checks}

## What is kept, and where

Runs and graph are in one file, `.agentloop/state.db` beside the task file unless `graph.file` or `--db` names
another. The workspace of a run is a copy, `.agentloop/runs/RUN/workspace`, which stays until
`agentloop runs --clean`.
"""

_CHECKS: Mapping[str, str] = {
    "file_exists": "there is a file at the path, or one that matches the pattern; with `/` at its end a folder",
    "file_missing": "there is none",
    "file_contains": "`path=text`: the file contains the text",
    "json_valid": "the file is JSON",
    "exit_code": "a call ended with that exit code",
    "last_exit_code": "the newest call with an exit code ended with that one",
    "stdout_contains": "a call printed the text",
    "stdout_matches": "a call printed something that matches the pattern",
    "symbolic": "`name=value`: the fact has that value; without `=` there is such a fact",
}


def task() -> str:
    """The page about task files."""
    schema = task_schema()
    lines = [_TASK.strip().format(note=NOTE), ""]
    for name, part in schema["properties"].items():
        part = _resolved(schema, part)
        if name in ("agent", "evaluator"):
            part = {**part, "description": f"Who acts as the {name}."}
        lines += [f"## {_heading(name, part)}", "", part["description"], ""]
        rows = part.get("properties") or part.get("items", {}).get("properties", {})
        cells = [_key(schema, key, row, part.get("items", part)) for key, row in rows.items()]
        if cells:
            lines += [*table(("key", "type", "default", "meaning"), cells), ""]
        elif "default" in part:
            lines += [f"{_type(schema, part)}; `{encode_text(part['default'])}` if absent.", ""]
    assert _CHECKS.keys() == CHECKS.keys()
    options = {name: ", ".join(f"`{key}`" for key in form) for name, form in _forms().items()}
    checks = table(("kind", "holds if"), ((f"`{kind}`", text) for kind, text in _CHECKS.items()))
    return "\n".join([*lines, _TASK_END.strip().format(**options, checks="\n".join(checks))]) + "\n"


def _forms() -> Mapping[str, Sequence[str]]:
    """The options of what a task can name, from the forms that check them."""
    forms = {"openai": OpenAIOptions, "command": CommandOptions, "shell": ShellOptions}
    return {name: [field.name for field in msgspec.structs.fields(form)] for name, form in forms.items()}


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part


def _heading(name: str, part: Mapping[str, Any]) -> str:
    if part.get("type") == "object":
        return f"`[{name}]`"
    return f"`[[{name}]]`" if "properties" in part.get("items", {}) else f"`{name}`"


def _key(
    schema: Mapping[str, Any], key: str, row: Mapping[str, Any], part: Mapping[str, Any]
) -> Sequence[object]:
    row = _resolved(schema, row)
    default = f"`{encode_text(row['default'])}`" if "default" in row else ""
    if key in part.get("required", ()):
        default = "required"
    return f"`{key}`", _type(schema, row), default, row.get("description", "")


def _type(schema: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if "enum" in row:
        return " or ".join(f"`{encode_text(value)}`" for value in row["enum"])
    if row["type"] == "array":
        return f"list of {_type(schema, _resolved(schema, row['items']))}s"
    return {"object": "table", "string": "text", "boolean": "boolean", "integer": "integer"}[row["type"]]


# ----------------------------------------------------------------------------------- guards

_GUARDS = """
# Guards

{note}

A guard is a condition on a move, written as text on an edge. It is parsed, never run as code; it
calls nothing, loops over nothing, reads no attribute. Whatever the context holds, it answers, and
what cannot be evaluated is denied.

```python
from graphstate import GuardError, compile_guard, eval_guard

guard = compile_guard("stat.failures == 0 && vars.approved == true")
print(guard.evaluate({{"stat": {{"failures": 0}}, "vars": {{"approved": True}}}}))
print(eval_guard("toTags has 'ready'", {{"toTags": ["draft"]}}))
try:
    compile_guard("vars.tries = 3")
except GuardError as error:
    print(error)
```

```text
Evaluation(passed=True, units=7, exhausted=False)
False
unexpected '=' at position 11
```

## Operators

What binds least comes first. Comparisons do not chain: `a == b == c` is refused. `!` binds most, so
that `!a == b` means `(!a) == b`.

{operators}

## Values

- **Missing.** A path that leads nowhere is missing, and so is what is not JSON: an object of a
  program, a number that is not finite, an integer of more than 1,000 digits. **Every comparison in
  which something is missing is false, `!=` too**, and `in` and `has` as well. `exists` asks.
- **Truth.** False, null, 0, the empty text and what is missing are false. Everything else is true,
  the empty list and the empty object too: ask for `vars.list.length > 0`.
- **Equality** is that of JSON, by value: numbers by their exact value (`1 == 1.0`), lists member by
  member, objects key by key. There is no coercion: `'1' == 1`, `true == 1` and `null == false` are
  false. Two lists that are both written in the guard are never equal, not even `[] == []`.
- **Order** is between two numbers or between two texts, by code point. Between anything else every
  order is false: null, booleans, lists and objects have none.
- **Paths** go through the keys of objects and into lists by index (`toTags.0`) or `length`. Texts
  have nothing inside, not even a length. A part named `__proto__`, `prototype` or `constructor` is
  refused.
- **Texts** stand in single or double quotes and know `\\\\`, `\\'`, `\\"`, `\\n`, `\\r`, `\\t`.
- **Numbers** have no exponent. One with several dots (`1.2.3`) is no number: it equals nothing and
  has no order.
- `in`, `has` and `exists` are words only where one is expected; elsewhere they are names.

## Context

The names that a guard on a transition can use. They hold what was so before the move.

{context}

## Examples

{examples}

## Bounds

| what | bound |
|---|---|
| characters | {length:,} |
| nesting | {depth} levels of the grammar: 12 brackets or lists in each other, 61 times `!` |
| digits of an integer | 1,000 |
| work of one evaluation | {budget:,} units, else it does not pass, with the reason `guard_budget` |
| compiled guards that are kept | {cached:,}, refusals included |

A unit is the same on every machine, so that a guard that is denied for its work is denied
everywhere. It costs one for each node of the guard (a comparison, a path, a literal, a joining
operator), whether it is reached or not; one for each member that is looked at in a list; for the
comparison of two lists or objects {pair}, and one for each member and each key of both; one for each
{characters} characters compared or searched; one for each {pairs:,} pairs of characters of a text and of
what is looked for in it.

## Grammar

In the notation of [Lark](https://lark-parser.readthedocs.io), which reads it in the tests and has to
agree with the parser on every text.

```lark
{grammar}
```
"""


def guards() -> str:
    """The page about conditions on moves."""
    operators = table(("operator", "is true if"), ((f"`{key}`", says) for key, says in OPERATORS.items()))
    context = table(("name", "value"), ((f"`{key}`", says) for key, says in CONTEXT.items()))
    examples = table(
        ("guard", "context", "passes", ""),
        (
            (f"`{row.text}`", f"`{encode_text(row.context)}`", "yes" if row.passes else "no", row.says)
            for row in EXAMPLES
        ),
    )
    return _GUARDS.lstrip().format(
        note=NOTE,
        operators="\n".join(operators),
        context="\n".join(context),
        examples="\n".join(examples),
        length=MAX_LENGTH,
        depth=MAX_DEPTH,
        budget=GUARD_BUDGET,
        cached=MAX_CACHED,
        pair=PER_PAIR,
        characters=CHARACTERS_PER_UNIT,
        pairs=PAIRS_PER_UNIT,
        grammar=GRAMMAR,
    )


# ------------------------------------------------------------------------- the orchestrator

_ORCHESTRATOR = """
# The orchestrator

{note}

`agentloop.run(goal, provider=..., tools=...)` works on a goal with a model and its tools. Every
decision is made by a pure function, `reduce(state, event, config)`, and is on record before
anything that follows from it is done; so a run replays exactly, and goes on elsewhere if it is
cut off. [How to run one](../how-to/orchestrator.md).

## Phases

```mermaid
{diagram}
```

These events are legal in every phase that is not the last, and are not drawn: {anywhere}.

## Which event may follow where

A dot means that the event is not accepted. {loops} leave the phase as it is; traces, fingerprints
and counts of steps skip them.

{grid}

## What is done about a failure

Every failure is a value with a class, and each class has one remedy.

| class | remedy | which means |
|---|---|---|
{remedies}

A provider, a tool, an assembler or a finalizer says the class itself: by `Err(...)`, or by raising
`ClassifiedError`. Anything else that is raised is `fatal`.

## Limits

`config={{"budget": {{"max_steps": 3}}}}` is merged over these, key by key; the names on the wire are in
camel case. `None` takes a limit away where that is said to be possible.

{budget}

### Waits, under `retry`

{retry}

### Deadlines and sizes

{config}

A result of a tool that is longer than `max_result_tokens` is shown in part; from then on the model can
call `read_more`, which reads on in it.

## The record

The ledger keeps a `fact.*` for each event from outside and a `step` for each decision. A window
keeps only what it does not share with the one before it, a batch of results only names those that
stand before it. `read_run_file(store, run)` gives the run as one file (version 2): a header and the
steps; `replay_file(file, config=...)` says where a run would have gone another way under other
limits. `file.fingerprint` stands for the path of a run, `file.fingerprint2` also for how its calls
and the run came out.
"""

_REMEDY_TEXTS = {
    "transient": "the same is tried again after a wait, as often as the limits allow",
    "correctable": "the model is shown the error and answers again",
    "fatal": "the run fails",
    "budget": "the run is halted",
    "cancelled": "the run fails; its caller has stopped it",
}


def orchestrator() -> str:
    """The page about orchestrated runs."""
    head, *rows = ORCHESTRATION.to_grid()
    remedies = (f"| `{name}` | {remedy} | {_REMEDY_TEXTS[name]} |" for name, remedy in REMEDIES.items())
    return _ORCHESTRATOR.lstrip().format(
        note=NOTE,
        diagram=ORCHESTRATION.to_mermaid(anywhere=False),
        anywhere=", ".join(f"`{event}`" for event in ORCHESTRATION.anywhere),
        loops=", ".join(f"`{event}`" for event in sorted(SELF_LOOPS)),
        grid="\n".join(table(head, rows)),
        remedies="\n".join(remedies),
        budget="\n".join(_settings(Budget)),
        retry="\n".join(_settings(RetryPolicy)),
        config="\n".join(_settings(RunConfig)),
    )


def _settings(form: type[msgspec.Struct]) -> list[str]:
    """Return a table of a config's numbers, with what stands above each of them."""
    says = {
        name: " ".join(line.strip("#: ") for line in lines.strip().splitlines())
        for lines, name in re.findall(r"((?:    #: .*\n)+)    (\w+):", inspect.getsource(form))
    }
    fields = (one for one in msgspec.structs.fields(form) if one.name in says)
    return table(
        ("name", "default", ""), ((f"`{one.name}`", f"`{one.default}`", says[one.name]) for one in fields)
    )


# ------------------------------------------------------------------------------ the window

_WINDOW = """
# The context window

{note}

`create_assembler(ContextConfig(...))` makes windows; the [how-to page](../how-to/context.md) shows
how. Tokens are whole numbers, shares go from 0 to 1.

## The standard sections

In the order in which they are served. `place` is where they stand in the window, `share` the part of
the room left at their turn that they may take while others compete.

{sections}

A pinned section is shown whole. `cut` shortens the first item that does not fit, `pass over` goes on
with the next one. Sections without an item are left out.
{options}
"""


def _commented(cls: type) -> Iterable[tuple[str, str, str, str]]:
    """Yield name, type, default and comment of each field of a class, from its source."""
    says: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        text = line.strip()
        if text.startswith("#: "):
            says.append(text[3:])
        elif line.startswith("    ") and line[4:5].isalpha() and not text.startswith(("def ", "async ", "@")):
            name, _, rest = text.partition(": ")
            kind, _, default = rest.partition(" = ")
            if name.isidentifier() and kind:
                yield f"`{name}`", f"`{kind}`", f"`{default}`" if default else "required", " ".join(says)
            says = []


def _standard_sections() -> list[str]:
    record = MemoryRecord(id="m", text="m", kind="instruction", trust="developer", salience=1.0)
    config = ContextConfig(
        budget=ContextBudget(total=1),
        system_prompt="s",
        memory=MemoryOptions(store=InProcessMemory()),
        retrieval=RetrievalOptions(retriever=Bm25Retriever()),
    )
    said = [Message(role="user", content="x") for _ in range(6)]
    request = AssemblyRequest(
        run_id="r", step=0, goal="g", transcript=said, tools=(ToolSpec(name="t"),), note="n", summaries=("s",)
    )
    found = Found(standing=(record,), memories=(record,), passages=(Passage(id="p", text="p"),))
    made = sorted(standard_sections(config, request, found), key=lambda section: section.priority)
    rows = (
        (
            f"`{section.id}`", f"{section.priority:g}", f"{section.order:g}", "yes" if section.pinned else "",
            "" if section.max_share is None else section.max_share,
            "" if section.pinned else "cut" if section.overflow == "truncate" else "pass over",
            "newest first" if section.fill == "last" else "",
            section.block.role if section.block else "as said",
        )
        for section in made
    )  # fmt: skip
    return table(("section", "priority", "place", "pinned", "share", "too long", "filled", "role"), rows)


def window() -> str:
    """The page about the context window."""
    options: list[str] = []
    for cls in (
        ContextConfig,
        ContextBudget,
        HistoryOptions,
        MemoryOptions,
        RetrievalOptions,
        Section,
        MemoryRecord,
    ):
        summary = (inspect.getdoc(cls) or "").partition("\n")[0]
        options += ["", f"## {cls.__name__}", "", summary, ""]
        options += table(("option", "type", "default", ""), _commented(cls))
    return _WINDOW.lstrip().format(
        note=NOTE, sections="\n".join(_standard_sections()), options="\n".join(options)
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/adaptogen.md": adaptogen,
    "reference/graph-events.md": events,
    "reference/context.md": window,
    "reference/graph-verbs.md": graph_verbs,
    "reference/guards.md": guards,
    "reference/orchestrator.md": orchestrator,
    "reference/task.md": task,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
