"""Write the reference pages from the tables they describe.

    python docs/generate.py

A test compares each page with what this would write, so that none can drift.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from graphstate.adaptogen import Adaptogen  # noqa: E402 - found through the path above
from graphstate.cli.commands import EVERYWHERE, GROUPS, Command  # noqa: E402
from graphstate.manifest import VERBS, describe  # noqa: E402

__all__ = ("PAGES", "adaptogen", "graph_verbs")

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
    rows += [(f"`{flag.shown}`", flag.help) for flag in command.flags]
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
    tunables = (
        (f"`{key}`", f"`{row['default']}`", row["accepted"], row["meaning"])
        for key, row in manifest["tunables"].items()
    )
    lines += ["## Tunables", "", *table(("key", "default", "accepted", "meaning"), tunables), ""]
    lines += ["## Patterns", ""]
    for name, code in manifest["patterns"].items():
        lines += [f"{name.replace('_', ' ').capitalize()}:", "", "```py", *code, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


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


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/adaptogen.md": adaptogen,
    "reference/graph-verbs.md": graph_verbs,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
