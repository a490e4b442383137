"""An ordinary call of each verb of the memory, with all its arguments, and a graph on which it succeeds."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from graphstate import Adaptogen, to_json
from graphstate.manifest import VERBS
from graphstate.verbs.activation import Activating
from graphstate.verbs.embedding import Embedding
from graphstate.verbs.learning import Learning
from graphstate.verbs.recollection import Recollection
from graphstate.verbs.replication import Replication
from graphstate.verbs.succession import Succession
from tests.graphstate.conftest import Make

__all__ = ("ORDINARY", "VERBS_OF_MEMORY", "ordinary", "sown")

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
    "spread": {
        "seeds": {"a": 1, "b": 0.5}, "limit": 3, "depth": 2, "decay": 0.5, "fan_beta": 0.5,
        "edge_types": {"transition": 0.5}, "direction": "out",
    },
    "working_memory": {
        "limit": 3, "min_score": 0.1, "scope": "me", "context": "x", "context_fallback": True, "token_budget": 100, "cost_of": None,
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


def sown(make: Make, **options: Any) -> Adaptogen:
    """Return a graph with something in it for every call."""
    graph = make(embedder="hashing", **options)
    for node in "abcd":
        graph.remember(node, kind="fact", payload={"text": f"{node} tea"}).unwrap()
        graph.reinforce(node, 0.3, context="x").unwrap()
    graph.link("a", "b", id="ab").unwrap()
    graph.supersede("c", "d").unwrap()
    graph.export_deltas().unwrap()
    graph.reinforce("a", 0.2).unwrap()
    return graph


def ordinary(graph: Adaptogen, verb: str) -> dict[str, Any]:
    """Return the arguments of the call on this graph."""
    given = dict(ORDINARY[verb])
    if verb == "import_deltas":
        given["deltas"] = to_json(graph.export_deltas(flush=True).unwrap())
    if verb == "feedback":
        given["retrieval_id"] = graph.pulse("tea", scope="me").retrieval_id
    changes = "cause" in inspect.signature(getattr(Adaptogen, verb)).parameters
    return given | ({"actor": None, "cause": None} if changes else {})
