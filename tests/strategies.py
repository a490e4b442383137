"""What the properties are tried on."""

from __future__ import annotations

from hypothesis import strategies as st

from agentloop._canonical import Json
from agentloop.frames import NODE_COMPLETED, TEXT, TREE_FAILED, Frame

__all__ = (
    "buffer_steps",
    "check_strings",
    "frames",
    "graph_steps",
    "json_values",
    "limits",
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
