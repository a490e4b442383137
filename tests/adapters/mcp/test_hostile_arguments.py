"""Whatever stands in whatever place: an answer, never an internal error, and a failure changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from adapters.mcp.desk import Desk
from adapters.mcp.tools import Tool, all_tools
from graphstate import Adaptogen, ErrorCode

TOOLS = all_tools()
CODES = {str(code) for code in ErrorCode}

#: One ordinary call of every tool, on the graph below.
ORDINARY: Mapping[str, dict[str, Any]] = {
    "memory_store": {
        "content": "new", "memory_class": "episodic", "context": "c", "confidence": 0.5, "source": "s",
        "metadata": {"a": 1}, "tags": ["t"], "id": "new", "cause": "k1",
    },
    "memory_store_batch": {"items": [{"content": "p"}, {"content": "q", "id": "q"}], "cause": "k2"},
    "memory_recall": {
        "query": "build", "context": "c", "strict_context": True, "limit": 3, "token_budget": 100,
        "include_neighbors": True, "depth": 2, "neighbor_limit": 3, "edge_types": ["CITES"],
        "include_superseded": True, "include_suppressed": True, "as_of": 5, "scope": "s",
    },
    "memory_context": {
        "context": "c", "strict_context": True, "limit": 3, "token_budget": 100, "diversity": 0.5, "pinned": ["m"],
    },
    "memory_get": {"memory_id": "m"},
    "memory_update": {"memory_id": "m", "patch": {"confidence": 0.5}, "expected_revision": 1, "cause": "k3"},
    "memory_forget": {"memory_id": "m", "confirm": True, "expected_revision": 1},
    "memory_feedback": {"retrieval_id": "SEARCH", "memory_id": "m", "useful": True, "cause": "k4"},
    "memory_suppress": {"memory_id": "m", "amount": 0.5, "context": "c", "reason": "r", "cause": "k5"},
    "memory_release": {"memory_id": "m", "amount": 0.5, "context": "c", "reason": "r", "cause": "k6"},
    "memory_supersede": {"new_memory_id": "n", "old_memory_id": "m", "reason": "r", "cause": "k7"},
    "memory_consolidate": {
        "source_ids": ["m", "n"], "content": "both", "memory_class": "semantic", "context": "c",
        "confidence": 0.5, "metadata": {}, "id": "made", "cause": "k8",
    },
    "memory_link": {"source": "m", "target": "n", "relationship": "CITES"},
    "memory_unlink": {"source": "m", "target": "n", "relationship": "CITES"},
    "memory_thread": {"start_id": "m", "max_depth": 3, "relationship": "CITES"},
    "memory_explain": {"memory_id": "m"},
    "memory_list_contexts": {},
    "graph_orient": {"vars": {}},
    "graph_render": {},
    "graph_recall": {
        "id": "a", "kind": "state", "tag": "t", "status": "active", "text": "a", "like": "b", "as_of": 2**45, "limit": 3,
    },
    "graph_get_node": {"id": "a"},
    "graph_remember": {
        "id": "x", "kind": "fact", "label": "X", "payload": {"a": 1}, "tags": ["t"], "status": "active",
        "memory": {"confidence": 0.5}, "expect_version": 0, "cause": "k9",
    },
    "graph_set_status": {"id": "a", "status": "archived", "cause": "k10"},
    "graph_link": {
        "src": "a", "dst": "b", "id": "e", "kind": "transition", "label": "l", "guard": "vars.x == 1",
        "enforcement": "soft", "weight": 2, "upsert": True, "expect_version": 0, "reason": "r", "cause": "k11",
    },
    "graph_depend": {"node": "b", "prereq": "a", "id": "d", "label": "l", "cause": "k12"},
    "graph_unlink": {"edge_id": "ab", "expect_version": 1, "reason": "r", "cause": "k13"},
    "graph_get_edge": {"edge_id": "ab"},
    "graph_plan": {"spec": {"nodes": ["z"], "cursor": ["a"]}, "cause": "k14"},
    "graph_ready": {"done": ["a"]},
    "graph_cursor": {},
    "graph_set_cursor": {"nodes": ["b"], "expect_nodes": ["a"], "reason": "r", "cause": "k15"},
    "graph_suggest": {"vars": {}},
    "graph_legal_moves": {"vars": {}},
    "graph_explain_transition": {"to": "b", "edge_id": "ab", "head": "a", "vars": {}},
    "graph_transition": {"to": "b", "edge_id": "ab", "head": "a", "vars": {}, "cause": "k16"},
    "graph_step": {"to": "b", "vars": {}, "reward": 1, "cause": "k17"},
    "graph_reward": {
        "value": 1, "edge_id": "ab", "trace": False, "depth": 2, "lambda_": 0.5, "cause": "k18",
    },
    "graph_get_stat": {"kind": "edge", "id": "ab"},
    "graph_zones": {},
    "graph_locks": {},
    "graph_history": {
        "type": "NodeUpserted", "node": "a", "edge": "ab", "actor": "mcp", "from_seq": 1, "limit": 2,
    },
    "graph_checkpoint": {"name": "c", "cause": "k19"},
    "graph_list_checkpoints": {},
    "graph_validate": {},
    "graph_metrics": {},
}  # fmt: skip

HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**400, float("nan"), float("inf"), "", " ", "\x00", "\u202eabc", "\ud800", "x" * 5_000,
    "'; DROP TABLE node; --", "../../etc/passwd", "__proto__", "nowhere", [], [[]], [None], ["\ud800"], {}, {"": None},
    {"a": {"b": [1]}}, {"__class__": 1}, 2**63, -(2**63), 1e308,
)  # fmt: skip


def sown(path: str = ":memory:") -> Adaptogen:
    graph = Adaptogen.open(path, seed=False, actor="mcp", trust="model", embedder="hashing")
    spec = {"nodes": ["a", "b"], "transitions": [["a", "b", {"id": "ab"}]], "cursor": ["a"]}
    graph.plan(spec).unwrap()
    graph.remember("m", kind="semantic", payload={"text": "the build uses ninja"}).unwrap()
    graph.remember("n", kind="semantic", payload={"text": "the build uses make"}).unwrap()
    return graph


def calls(tool: Tool) -> Iterator[dict[str, Any]]:
    ordinary = ORDINARY[tool.name]
    for value in HOSTILE:
        for name in ordinary:
            yield {**ordinary, name: value}
            inner = ordinary[name]
            if isinstance(inner, dict):
                for key in inner:
                    yield {**ordinary, name: {**inner, key: value}}
            elif isinstance(inner, list) and inner:
                yield {**ordinary, name: [value, *inner[1:]]}
    for name in ordinary:
        yield {other: given for other, given in ordinary.items() if other != name}
    yield {**ordinary, "surprise": 1}


def test_there_is_an_ordinary_call_of_every_tool_with_all_its_arguments() -> None:
    assert set(ORDINARY) == set(TOOLS)
    for name, tool in TOOLS.items():
        assert set(ORDINARY[name]) | {"patch"} >= set(tool.schema["properties"]), name


@pytest.mark.asyncio
@pytest.mark.parametrize("name", TOOLS)
async def test_an_ordinary_call_succeeds(name: str) -> None:
    with sown() as graph:
        answer = await Desk(graph, TOOLS).call(name, searched(graph, ORDINARY[name]))
        assert not answer.failed, answer.structured


def searched(graph: Adaptogen, arguments: dict[str, Any]) -> dict[str, Any]:
    """Put the id of a search that found m in its place."""
    if arguments.get("retrieval_id") != "SEARCH":
        return arguments
    return {**arguments, "retrieval_id": graph.pulse("build").retrieval_id}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", TOOLS)
async def test_a_hostile_argument_is_refused_or_is_just_data(name: str) -> None:
    with sown() as graph:
        desk = Desk(graph, TOOLS)
        for arguments in calls(TOOLS[name]):
            head = graph.head()
            answer = await desk.call(name, searched(graph, arguments))
            if answer.failed:
                assert answer.structured["code"] in CODES, (arguments, answer.structured)
                assert {"message", "hint"} <= set(answer.structured)
                assert len(answer.text) < 4_000, arguments
                assert graph.head() == head, arguments
            assert answer.text.encode()
        assert graph.verify_integrity(deep=True).ok
