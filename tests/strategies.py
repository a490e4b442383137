"""What the properties are tried on."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from agentloop._canonical import Json
from agentloop.context.sections import Block, Item, Section
from agentloop.frames import NODE_COMPLETED, TEXT, TREE_FAILED, Frame
from agentloop.messages import Message, ToolCall
from graphstate import Edge
from graphstate.activation.decay import HOUR_MS
from graphstate.activation.record import Activation, Lens
from graphstate.policy import Fence, GuardReport

__all__ = (
    "activation_records",
    "activation_steps",
    "buffer_steps",
    "check_strings",
    "evolution_steps",
    "fences",
    "context_sections",
    "conversations",
    "deep_list",
    "frames",
    "governed_edges",
    "guard_reports",
    "graph_steps",
    "guard_contexts",
    "guard_texts",
    "guards",
    "json_values",
    "labels",
    "limits",
    "memory_programs",
    "model_scripts",
    "overflow_strategies",
    "stream_steps",
    "symbolic_operations",
    "trace_entries",
    "verdict_texts",
)


def json_values(max_leaves: int = 20) -> st.SearchStrategy[Json]:
    """Any JSON value this library writes: finite numbers, no lone surrogates."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"]))
    )
    keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=max_leaves,
    )


#: Parts that mean something to a diagram, a terminal, a page or a text format.
_MEANINGFUL = (
    "end", "graph LR", "subgraph x", "click n1 call f()", "classDef a fill:red", "style n1 fill:#f00;", "%%", "%%{init}%%",
    "-->", "---", "|", "[", "]", '["', '"]', "(", ")", "{", "}", "<", ">", "<b>", "</b>", "<br/>", "&", "&lt;", "&#34;",
    "#34;", "#quot;", "#", ";", ":", ":::", "`", "**", "$$x$$", "\\", "\\n", "\\N", "\\l", '\\"', '"', "'", "\n", "\r\n", "\t",
    "\0", "\x07", "\x1b[31m", "\x1b]0;title\x07", "\x1b[2J", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u200b", "\u200d",
    "\ufeff", "\u2028", "\u2029", "\U000e0041", "\ufffe", "ﬂ°°34¶ß", "é", "日本語", "🦊", "e\u0301", "\xa0", " ", "  ",
)  # fmt: skip


def labels(max_parts: int = 6) -> st.SearchStrategy[str]:
    """Texts of any characters but lone surrogates, many of them with parts that mean something somewhere."""
    parts = st.sampled_from(_MEANINGFUL) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    return st.lists(parts, max_size=max_parts).map("".join)


def symbolic_operations() -> st.SearchStrategy[list[dict[str, Json]]]:
    """Updates of a few names, so that they meet."""
    names = st.sampled_from("abc")
    asserts = st.fixed_dictionaries(
        {"name": names, "value": json_values(4) | st.sampled_from([0, 1, True, 1.0])}
    )
    retracts = st.fixed_dictionaries({"name": names, "op": st.just("retract")})
    return st.lists(asserts | retracts, max_size=12)


def check_strings() -> st.SearchStrategy[str]:
    """Check strings, most of them of a known kind and about something that is there."""
    kinds = st.sampled_from(
        ["file_exists", "file_missing", "file_contains", "json_valid", "exit_code", "last_exit_code", "stdout_contains",
         "stdout_matches", "symbolic", "t/exit_code", "!exit_code", "u/stdout_contains", "nope", ""]
    )  # fmt: skip
    arguments = st.sampled_from(
        ["out.txt", "sub/", "sub/*.json", "../secret", "up/secret", "far/passwd", "loop", "0", "1", "-9", "a=1", "b=text",
         "c=[true,null]", "d", "out.txt=inside", "ok", r"\d+ ok", "(a+)+$", "[", "**/in.json", "\0", ""]
    ) | st.text(max_size=12)  # fmt: skip
    return st.builds("{}:{}".format, kinds, arguments) | st.text(max_size=20)


def trace_entries() -> st.SearchStrategy[dict[str, Json]]:
    """Entries of a tool trace of few tools, codes and arguments."""
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["t", "u"]),
            "arguments": st.sampled_from([{}, {"a": 1}]),
            "exit_code": st.sampled_from([None, 0, 1, -9, "0", True]),
            "stdout": st.sampled_from([None, "", "3 ok\n", "\x1b[1mok"]) | st.text(max_size=8),
        }
    )


def verdict_texts() -> st.SearchStrategy[str]:
    """Texts made of what verdicts are made of, whole and broken."""
    pieces = st.sampled_from(
        ['{"status":"SUCCESS"}', '{"status":"FAILURE"}', "{'status':'SUCCESS'}", '"status"', '"SUCCESS"', ":", ",", "{", "}",
         "[", "]", '"', "'", "\\", "```", "```json\n", "<think>", "</think>", '"\\u0073tatus"', " ", "prose", "\ufeff"]
    )  # fmt: skip
    return st.lists(pieces | st.text(max_size=3), max_size=10).map("".join)


# ----------------------------------------------------------------------------------- streams


def frames() -> st.SearchStrategy[Frame]:
    """Frames of plain, terminal and made-up types with small JSON contents."""
    return st.builds(
        Frame,
        st.sampled_from([TEXT, NODE_COMPLETED, TREE_FAILED, "ABORT", "mine"]),
        st.dictionaries(st.sampled_from(["text", "n"]), st.text(max_size=3) | st.integers(), max_size=2),
    )


def limits() -> st.SearchStrategy[int | None]:
    return st.none() | st.sampled_from([1, 2, 3, 10])


def overflow_strategies() -> st.SearchStrategy[str]:
    return st.sampled_from(["drop-oldest", "drop-newest", "block"])


def buffer_steps() -> st.SearchStrategy[list[str]]:
    """What one task does to a buffer without waiting; ends are rare, so that runs get long."""
    often = st.sampled_from(["write", "write", "read"])
    rare = st.sampled_from(["end", "fail", "abort"])
    return st.lists(st.one_of(*[often] * 12, rare), max_size=60)


def stream_steps(writers: int = 3) -> st.SearchStrategy[list[tuple[str, int]]]:
    """What happens around a buffer: writers and a reader start, are cancelled, get time to run."""
    writer = st.integers(0, writers - 1)
    return st.lists(
        st.tuples(st.just("write"), writer)
        | st.tuples(st.just("read"), st.just(0))
        | st.tuples(st.just("cancel_write"), writer)
        | st.tuples(st.just("cancel_read"), st.just(0))
        | st.tuples(st.just("run"), st.integers(1, 3)),
        max_size=60,
    )


# ------------------------------------------------------------------------------------- graphs


def graph_steps(max_size: int = 30) -> st.SearchStrategy[list[tuple[str, dict[str, Json]]]]:
    """Calls of a graph's verbs about a few nodes and edges, so that they meet; some will fail."""
    nodes, edges = st.sampled_from("abcd"), st.sampled_from(["e1", "e2", "e3", "e4", "e5"])
    actors, numbers = st.sampled_from(["developer", "robot"]), st.sampled_from([-1, 0, 0.5, 1])

    def call(
        verb: str, **arguments: st.SearchStrategy[Json]
    ) -> st.SearchStrategy[tuple[str, dict[str, Json]]]:
        return st.tuples(st.just(verb), st.fixed_dictionaries({}, optional=arguments))

    def whole(
        verb: str, **arguments: st.SearchStrategy[Json]
    ) -> st.SearchStrategy[tuple[str, dict[str, Json]]]:
        return st.tuples(st.just(verb), st.fixed_dictionaries(arguments))

    remember = st.tuples(
        st.just("remember"),
        st.fixed_dictionaries(
            {"id": nodes},
            optional={
                "payload": json_values(5), "label": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
                "tags": st.lists(st.sampled_from("pq"), max_size=2), "kind": st.sampled_from(["fact", "task"]),
                "embedding": st.lists(st.floats(-1, 1), min_size=1, max_size=3),
                "status": st.sampled_from(["active", "active", "archived"]),
            },
        ),
    )  # fmt: skip
    return st.lists(
        st.one_of(
            remember,
            remember,
            whole("link", src=nodes, dst=nodes, id=edges, upsert=st.just(True), weight=st.sampled_from([0.5, 1, 2]),
                  kind=st.sampled_from(["transition", "transition", "dependency", "reference"])),
            whole("depend", node=nodes, prereq=nodes, id=edges),
            whole("unlink", edge_id=edges),
            whole("set_cursor", nodes=st.lists(nodes, max_size=2), actor=actors),
            call("step", reward=numbers, actor=actors),
            call("step", reward=numbers, actor=actors),
            whole("reward", value=numbers, trace=st.booleans(), actor=actors),
            whole("archive", id=nodes),
            whole("set_tunable", key=st.sampled_from(["rewardAlpha", "epsilon"]), value=st.sampled_from([0.1, 1])),
            whole("checkpoint", name=st.just("here")),
        ),
        max_size=max_size,
    )  # fmt: skip


#: Paths that the contexts below know, most of the time.
_GUARD_PATHS = (
    "a", "b", "c", "vars.a", "vars.b", "vars.list", "vars.list.0", "vars.list.length", "vars.missing", "vars.a.k",
    "b.1", "in", "has", "exists", "true.x", "a.length",
)  # fmt: skip
_GUARD_LITERALS = (
    "true", "false", "null", "0", "1", "-1", "2.5", "5.", "-0", "1.2.3", "9007199254740993", "''", "'a'", '"abc"', "'1'",
    r"'it\'s'", r"'\n'", "'k'", f"'{'ab' * 40}'", "[]", "[1]",
)  # fmt: skip
_GUARD_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "in", "has")


def guards() -> st.SearchStrategy[str]:
    """Guards that compile."""
    space = st.sampled_from(["", " ", "\t", "\r\n"])
    paths = st.sampled_from(_GUARD_PATHS)
    asked = paths.filter(lambda path: path not in ("in", "has"))
    atoms = (
        paths
        | st.sampled_from(_GUARD_LITERALS)
        | st.builds("exists {}".format, asked)
        | st.builds("exists({})".format, paths)
    )
    signs = st.sampled_from(_GUARD_SIGNS)

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        operands = atoms | st.builds("({})".format, inner) | st.builds("!{}{}".format, space, atoms)
        lists = st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        compared = st.builds("{} {} {}".format, operands | lists, signs, operands | lists)
        joined = st.builds("{}{}{}".format, inner, st.sampled_from(["&&", " || ", "\n&& "]), inner)
        return compared | joined | lists | st.builds("({}{}{})".format, space, inner, space)

    return st.recursive(
        st.builds("{} {} {}".format, atoms, signs, atoms) | atoms, grown, max_leaves=8
    ).filter(lambda text: len(text) <= 500)


def guard_texts() -> st.SearchStrategy[str]:
    """Guards, guards with a few characters changed, words of the language in a heap, and any text."""
    words = st.sampled_from(
        [*_GUARD_PATHS, *_GUARD_LITERALS, *_GUARD_SIGNS, *"!()[],", "&&", "||", " ", "not", "=", "."]
    )
    pieces = words | st.sampled_from(
        ["constructor", "a.prototype", "'", '"', "\\", "-", "1e5", "\u00a0", "é", "\0"]
    )
    changes = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3), pieces), min_size=1, max_size=3)

    def changed(text: str, edits: list[tuple[int, int, str]]) -> str:
        for place, removed, added in edits:
            at = place % (len(text) + 1)
            text = text[:at] + added + text[at + removed :]
        return text

    heaps = st.lists(pieces, max_size=10)
    return (
        guards()
        | st.builds(changed, guards(), changes)
        | heaps.map(" ".join)
        | heaps.map("".join)
        | st.text(max_size=30)
        | st.binary(max_size=30).map(lambda data: data.decode("latin-1"))
    )


class _Hostile:
    """Refuses to be compared, counted or true."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("not JSON")

    __eq__ = __ne__ = __lt__ = __bool__ = __len__ = __iter__ = _refuse
    __hash__ = object.__hash__


class _Colour(StrEnum):
    A = "a"


def guard_contexts(*, hostile: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Contexts for `guards`; hostile ones hold what is not JSON, too, and what contains itself."""
    loop: list[Any] = [1]
    loop.append(loop)
    plain = [
        None, True, False, 0, 1, -1, 2.5, 1.0, -0.0, 2**53 + 1, 10**400, "", "a", "abc", "1", "it's", "ab" * 40, [], [1],
        [1, "1", None], ["abc", "a"], [[1], [True]], {}, {"k": 1}, {"k": [1]}, {"1": "a"}, ("a", 1), _Colour.A, [_Colour.A],
    ]  # fmt: skip
    odd = [
        float("nan"), float("inf"), [float("nan")], [float("inf")], 10**1_000, [10**1_000], b"a", {1}, object(), _Hostile(),
        [_Hostile(), 1, "a"], {"k": _Hostile()}, {1: 1}, loop, [loop], "a" * 200_000, ["a"] * 20_000, list(range(6_000)),
        {str(i): i for i in range(3_000)}, deep_list(200), {_Hostile(): 1, "k": 1},
    ]  # fmt: skip
    pool = [*plain, *odd] if hostile else plain
    values = st.integers(0, len(pool) - 1).map(pool.__getitem__)
    variables = st.fixed_dictionaries(
        {}, optional={"a": values, "b": values, "list": values, "exists": values}
    )
    return st.fixed_dictionaries(
        {"a": values, "b": values},
        optional={
            "c": values,
            "vars": variables | values if hostile else variables,
            "in": values,
            "exists": values,
        },
    )


def deep_list(depth: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


# ------------------------------------------------------------------------------------ policy

MODES = ("off", "soft", "hard")


def fences() -> st.SearchStrategy[list[Fence]]:
    """The zones of a node, few enough that two nodes share some. A name is always the same zone."""
    learned = st.sampled_from([None, "hard"])

    def zone(name: str) -> st.SearchStrategy[Fence]:
        return st.builds(
            Fence, name=st.just(name), intra=st.sampled_from(MODES), boundary=st.sampled_from(MODES),
            learned_intra=learned, learned_boundary=learned, locked=st.booleans(),
        )  # fmt: skip

    return st.tuples(*map(zone, "uvwxyz")).map(list)


def governed_edges() -> st.SearchStrategy[Edge]:
    """An edge with any mode, declared and learned."""
    return st.builds(
        Edge, id=st.just("e1"), src=st.just("a"), dst=st.just("b"),
        enforcement=st.none() | st.sampled_from(MODES), learned_enforcement=st.sampled_from([None, None, "hard"]),
    )  # fmt: skip


def guard_reports() -> st.SearchStrategy[GuardReport | None]:
    """No guard, or what may come of one."""
    return st.sampled_from(
        [None, GuardReport("g", True), GuardReport("g", False), GuardReport("g", False, "guard_budget")]
    )


# ------------------------------------------------------------------------------------- graph


def evolution_steps() -> st.SearchStrategy[list[tuple[str, ...]]]:
    """Calls of a graph with few nodes and edges, so that they meet: ordinary life and edits of the structure."""
    node, edge = st.sampled_from("abcd"), st.sampled_from(["e1", "e2", "e3", "e4", "e5", "e6"])
    actor = st.sampled_from(["developer", "robot"])
    life = st.one_of(
        st.tuples(
            st.just("link"), node, node, edge, st.sampled_from(["transition", "dependency", "reference"])
        ),
        st.tuples(st.just("link"), node, node, edge, st.just("transition")),
        st.tuples(st.just("link"), node, node, edge, st.just("dependency")),
        st.tuples(st.just("stand"), node, actor),
        st.tuples(st.just("step"), st.sampled_from(["-1", "0.5", "1"]), actor),
        st.tuples(st.just("status"), node, st.sampled_from(["active", "archived", "deprecated"])),
        st.tuples(st.just("remember"), node, st.sampled_from(["state", "task", "fact"])),
        st.tuples(st.just("pin"), node),
    )
    edits = st.one_of(
        st.just(("self_iterate",)),
        st.just(("gc",)),
        st.just(("reweight",)),
        st.just(("migrate",)),
        st.tuples(st.just("split"), node, st.sampled_from(["f", "g", "h"]), edge, edge),
        st.tuples(st.just("merge"), node, node),
        st.tuples(st.just("plan"), node, node, st.sampled_from(["g", "h", "i"]), edge),
    )
    return st.lists(st.one_of(life, life, edits), min_size=10, max_size=40)


# -------------------------------------------------------------------------------- windows


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """What a model said and was answered; some calls have no answer, some answers no call."""
    said: list[Message] = []
    for number in range(draw(st.integers(0, 5))):
        text = draw(st.text("ab\n ", max_size=40))
        kind = draw(st.sampled_from(["user", "assistant", "calls", "orphan"]))
        if kind == "calls":
            calls = tuple(
                ToolCall(id=f"c{draw(st.integers(0, 3))}.{index}", name="t", arguments={"n": number})
                for index in range(draw(st.integers(1, 3)))
            )
            said.append(Message(role="assistant", content=text, tool_calls=calls))
            answered = draw(st.lists(st.sampled_from(calls), unique_by=lambda call: call.id))
            said += [
                Message(role="tool", call_id=call.id, name="t", content="r" * draw(st.integers(0, 60)))
                for call in answered
            ]
        elif kind == "orphan":
            said.append(Message(role="tool", call_id="gone", name="t", content=text))
        else:
            said.append(Message(role="user" if kind == "user" else "assistant", content=text))
    return said


@st.composite
def context_sections(draw: st.DrawFn, *, most: int = 5, notes: bool = True) -> list[Section]:
    """Sections of every kind that may stand in one window."""
    sections = []
    for number in range(draw(st.integers(1, most))):
        messages = draw(conversations() | st.lists(st.text("xyz,.\n ", max_size=30).map(_said), max_size=6))
        block = Block(header=draw(st.sampled_from(["", "Known:"])), footer=draw(st.sampled_from(["", "end"])))
        sections.append(
            Section(
                id=f"s{number}",
                priority=draw(st.integers(0, 3)),
                order=draw(st.none() | st.integers(0, 3)),
                pinned=draw(st.integers(0, 5)) == 0,
                max_share=draw(st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0])),
                min_tokens=draw(st.sampled_from([0, 0, 0, 20])),
                overflow=draw(st.sampled_from(["drop", "truncate"])),
                fill=draw(st.sampled_from(["first", "last"])),
                block=draw(st.sampled_from([None, None, block])),
                elision_note="({} left out)".format if notes and draw(st.booleans()) else None,
                cut_marker=draw(st.sampled_from(["", " [cut]"])),
                items=[
                    Item(id=f"{number}.{place}", message=message) for place, message in enumerate(messages)
                ],
            )
        )
    return sections


def _said(text: str) -> Message:
    return Message(role="user", content=text)


# ----------------------------------------------------------------------------- orchestrator


def model_scripts() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Scripts of model calls: answers, blanks, failures of each class, calls of tools of each kind."""
    words = st.sampled_from(["answer", "", "  ", "é \U0001f600", "x" * 700])
    classes = st.sampled_from(["transient", "transient", "correctable", "fatal", "budget", "cancelled"])
    failures = classes.map(
        lambda name: {"failWith": {"class": name, "code": f"a.{name}", "message": f"a {name} failure"}}
    )
    too_long = st.just(
        {"failWith": {"class": "transient", "code": "context.length_exceeded", "message": "too long"}}
    )
    names = st.sampled_from(["read", "slow", "write", "flaky", "correctable", "nope", "read", "slow"])
    ending = st.sampled_from(["fatal", "budget", "cancelled"])
    arguments = st.sampled_from([{"n": 1}, {"n": 2}, {}, {"n": "x"}])
    calls = st.lists(
        st.fixed_dictionaries({"name": names | ending, "args": arguments}), min_size=1, max_size=4
    )
    said = st.fixed_dictionaries(
        {"say": words},
        optional={
            "callTools": calls,
            "stopReason": st.sampled_from(["end_turn", "max_tokens", "tool_use"]),
            "waitMs": st.integers(1, 2_000),
        },
    )
    return st.lists(said | said | failures | too_long, max_size=8)


_AMOUNTS = st.integers(-20, 20).map(lambda n: n / 10)
_MOMENTS = st.integers(0, 400 * HOUR_MS)
_CONTEXTS = st.sampled_from(["x", "y", "z"])


def activation_steps() -> st.SearchStrategy[list[tuple[str, float, int, str | None]]]:
    """What happens to one memory: (reinforce or suppress, amount, when, context), in no order of time."""
    step = st.tuples(st.sampled_from(["reinforce", "suppress"]), _AMOUNTS, _MOMENTS, st.none() | _CONTEXTS)
    return st.lists(step, max_size=12)


def activation_records() -> st.SearchStrategy[Activation]:
    """A record as any past may have left it."""
    value = st.floats(-3, 3)
    inhibited = st.none() | _MOMENTS
    lens = st.builds(
        lambda score, anchor, held, at: Lens(score, anchor, held if at is not None else 0.0, at),
        value, _MOMENTS, value, inhibited,
    )  # fmt: skip
    return st.builds(
        lambda score, importance, anchor, held, at, counts, contexts: Activation(
            score=score, importance=importance, anchor=anchor, inhibition=held if at is not None else 0.0,
            inhibited_at=at, reinforcement_count=counts[0], last_reinforced_at=counts[1] or None,
            shown=counts[2], useful=counts[3], harmful=counts[4], contexts=contexts,
        ),
        value, value, _MOMENTS, value, inhibited, st.tuples(*[st.integers(0, 9)] * 5),
        st.dictionaries(_CONTEXTS, lens, max_size=3),
    )  # fmt: skip


def memory_programs() -> st.SearchStrategy[list[tuple[str, ...]]]:
    """Calls of a graph with few memories, so that they meet; times pass in between."""
    node, context = st.sampled_from("abcdef"), st.sampled_from(["", "x", "y"])
    amount = _AMOUNTS.map(str)
    steps = st.one_of(
        st.tuples(st.just("wait"), st.sampled_from(["1", "30", "2000"])),
        st.tuples(st.just("reinforce"), node, amount, context),
        st.tuples(st.just("reinforce"), node, st.just("0.5"), context),
        st.tuples(st.just("suppress"), node, amount, context),
        st.tuples(st.just("release"), node, context),
        st.tuples(st.just("remember"), node, st.sampled_from(["state", "fact", "episode", "entity"])),
        st.tuples(st.just("class"), node, st.sampled_from(["", "semantic", "episodic"])),
        st.tuples(st.just("status"), node, st.sampled_from(["active", "archived", "deprecated"])),
        st.tuples(st.just("supersede"), node, node),
        st.tuples(st.just("unsupersede"), node),
        st.tuples(st.just("consolidate"), node, node, node),
        st.tuples(st.just("kind"), st.sampled_from(["state", "fact"]), st.sampled_from(["", "entity"])),
        st.tuples(st.just("half-life"), st.sampled_from(["0", "3600000", "86400000"])),
        st.tuples(st.just("link"), node, node),
        st.tuples(st.just("merge_states"), node, node),
        st.tuples(st.just("split_state"), node),
    )
    return st.lists(steps, min_size=5, max_size=40)
