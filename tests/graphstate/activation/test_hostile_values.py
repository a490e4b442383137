"""Whatever stands in whatever argument of a verb of the memory: an answer or a typed refusal, never more.

Numbers that are none are tried on every verb in `tests.graphstate.test_hostile_numbers`, tools of the
protocol in `tests.adapters.mcp.test_hostile_arguments`, words of the command line in
`tests.graphstate.cli`; here it is every kind of value in every argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Ok, VerbFailed, to_json
from graphstate._canonical import encode
from graphstate.manifest import VERBS
from graphstate.verbs.activation import Activating
from graphstate.verbs.embedding import Embedding
from graphstate.verbs.learning import Learning
from graphstate.verbs.recollection import Recollection
from graphstate.verbs.replication import Replication
from graphstate.verbs.succession import Succession
from tests.graphstate.conftest import Make

FAMILIES = (Activating, Succession, Recollection, Learning, Embedding, Replication)
VERBS_OF_MEMORY = (*(name for family in FAMILIES for name in VERBS[family]), "remember", "recall")

#: An ordinary call of each verb with all its arguments, on the graph below.
ORDINARY: Mapping[str, dict[str, Any]] = {
    "remember": {
        "id": "a", "kind": "fact", "label": "A", "payload": {"text": "tea"}, "patch": None, "tags": ["t"],
        "status": "active", "embedding": None, "embed": True, "expect_version": None,
        "memory": {
            "memory_class": "semantic", "confidence": 0.5, "source": "s", "observed_at": 5, "derived_from": ["b"],
            "supersedes": "b", "contradicts": ["c"],
        },
    },
    "recall": {
        "id": "a", "kind": "fact", "tag": "t", "status": "active", "text": "tea", "embedding": None, "like": "tea",
        "as_of": 2**50, "limit": 3,
    },
    "reembed": {"missing": True, "batch": 4, "limit": 5, "progress": None},
    "export_deltas": {"since": None, "threshold": 0.05, "flush": True},
    "import_deltas": {"deltas": "DELTAS"},
    "reinforce": {"id": "a", "amount": 0.1, "reason": "r", "context": "x", "outcome": "useful"},
    "reinforce_all": {"items": [{"id": "a", "amount": 0.1, "reason": "r", "context": "x", "outcome": "shown"}]},
    "suppress": {"id": "a", "amount": 0.1, "reason": "r", "context": "x"},
    "release": {"id": "a", "amount": 0.1, "reason": "r", "context": "x"},
    "bump_attention": {"id": "a", "amount": 0.1},
    "effective": {"id": "a", "context": "x", "include_superseded": True, "at": 5},
    "activation": {"id": "a", "at": 5},
    "top_activated": {
        "limit": 3, "context": "x", "context_fallback": True, "min_score": 0.1, "include_superseded": True, "at": 5,
    },
    "register_memory_class": {"kind": "note", "memory_class": "episodic"},
    "supersede": {"new": "a", "old": "b", "reason": "r"},
    "unsupersede": {"old": "d", "by": "c", "reason": "r"},
    "consolidate": {
        "id": "s", "sources": ["a", "b"], "suppress": 0.5, "kind": "fact", "label": "S", "payload": {"text": "x"},
        "tags": ["t"], "embedding": None, "memory": {"confidence": 0.5}, "reason": "r",
    },
    "expand": {"id": "s"},
    "pulse": {
        "query": "tea", "vector": None, "limit": 3, "scope": "me", "context": "x", "seeds": 3,
        "semantic_threshold": 0.1, "threshold": 0.1, "depth": 2, "decay": 0.5, "fan_beta": 0.5,
        "edge_types": {"transition": 0.5}, "direction": "out", "include_superseded": True, "as_of": 2**50,
        "gamma": 1, "normalise": True, "log": True,
    },
    "absorb": {
        "query": "tea", "vector": None, "limit": 3, "scope": "me", "context": "x", "threshold": 0.1, "gain": 0.1,
        "min_match": 0.1, "min_graph": 0.1, "most": 1, "habituate": True, "seeds": 3, "semantic_threshold": 0.1,
        "depth": 2, "decay": 0.5, "fan_beta": 0.5, "edge_types": ["transition"], "direction": "both", "gamma": 1,
        "normalise": True,
    },
    "working_memory": {
        "limit": 3, "min_score": 0.1, "context": "x", "context_fallback": True, "token_budget": 100, "cost_of": None,
        "diversity": 0.5, "similarity_of": None, "pinned": ["b"], "density": True, "include_superseded": True,
        "log": True,
    },
    "recognise": {
        "payload": {"text": "tea"}, "kind": "fact", "label": "A", "vector": None, "same": 0.9, "limit": 3,
    },
    "explain": {"id": "a"},
    "feedback": {
        "retrieval_id": "SEARCH", "id": "a", "useful": True, "rate": 0.1, "rule": "centred", "scope": "me",
        "signals": {"lexical": 0.5},
    },
    "weights": {"scope": "me"},
    "set_weights": {"weights": {"usage": 0.5}, "scope": "me"},
}  # fmt: skip

HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**400, float("nan"), float("-inf"), "", " ", "\x00", "\x1b[2J", "a\u202eb", "\ud800",
    "x" * 5_000, "'; DROP TABLE node; --", "../../etc/passwd", "nowhere", b"a", [], [[]], [None], ["\ud800"], ["\x1b"],
    {}, {"": None}, {"a": {"b": [1]}}, {1: 2}, object(), {1, 2}, 2**63, -(2**63), 1e308, ["a"] * 2_000,
)  # fmt: skip


def sown(make: Make) -> Adaptogen:
    graph = make(embedder="hashing")
    for node in "abcd":
        graph.remember(node, kind="fact", payload={"text": f"{node} tea"}).unwrap()
        graph.reinforce(node, 0.3, context="x").unwrap()
    graph.link("a", "b", id="ab").unwrap()
    graph.supersede("c", "d").unwrap()
    graph.export_deltas().unwrap()
    graph.reinforce("a", 0.2).unwrap()
    return graph


def ordinary(graph: Adaptogen, verb: str) -> dict[str, Any]:
    given = dict(ORDINARY[verb])
    if verb == "import_deltas":
        given["deltas"] = to_json(graph.export_deltas(flush=True).unwrap())
    if verb == "feedback":
        given["retrieval_id"] = graph.pulse("tea", scope="me").retrieval_id
    changes = "cause" in inspect.signature(getattr(Adaptogen, verb)).parameters
    return given | ({"actor": None, "cause": None} if changes else {})


def with_value(given: Any, value: Any) -> Iterator[Any]:
    """Put a value in the place of another one, and of each one that it holds."""
    yield value
    if isinstance(given, dict):
        for name, inner in given.items():
            for changed in with_value(inner, value):
                yield {**given, name: changed}
        if isinstance(value, str):
            yield {**given, value: 1}
    elif isinstance(given, list) and given:
        for changed in with_value(given[0], value):
            yield [changed, *given[1:]]


def answer(graph: Adaptogen, verb: str, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
    try:
        said = getattr(graph, verb)(**arguments)
    except VerbFailed as error:
        return False, str(error)
    if isinstance(said, Fail):
        assert said.hint
        return False, said.to_json()
    return True, to_json(said.value if isinstance(said, Ok) else said)


def test_there_is_an_ordinary_call_of_each_verb_with_all_its_arguments() -> None:
    assert set(ORDINARY) == set(VERBS_OF_MEMORY)
    for verb in VERBS_OF_MEMORY:
        signature = inspect.signature(getattr(Adaptogen, verb))
        assert {*ORDINARY[verb], "actor", "cause"} >= {*signature.parameters} - {"self"}, verb
        assert {*ORDINARY[verb]} <= {*signature.parameters}, verb


@pytest.mark.parametrize("verb", VERBS_OF_MEMORY)
def test_an_ordinary_call_succeeds(make: Make, verb: str) -> None:
    graph = sown(make)
    done, said = answer(graph, verb, ordinary(graph, verb))
    assert done, said


@pytest.mark.parametrize("verb", VERBS_OF_MEMORY)
def test_a_hostile_value_is_refused_and_changes_nothing_or_is_just_data(make: Make, verb: str) -> None:
    graph = sown(make)
    for name in ordinary(graph, verb):
        for value in HOSTILE:
            given = ordinary(graph, verb)
            for changed in with_value(given[name], value):
                before = graph.head()
                done, said = answer(graph, verb, given | {name: changed})
                if not done:
                    assert graph.head() == before, (name, changed)
                encode(said)
    assert graph.verify_integrity(deep=True).ok
    assert graph.remember("afterwards").ok
