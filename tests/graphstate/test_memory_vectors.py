"""Vectors V25 to V41: the seed, nodes, recall."""

from __future__ import annotations

from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Node, VerbFailed
from graphstate.events import GRAPH
from tests.graphstate.conftest import Make


def node(graph: Adaptogen, id: str) -> Node:
    found = graph.get_node(id)
    assert found is not None
    return found


def ids(nodes: list[Node]) -> list[str]:
    return [found.id for found in nodes]


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    assert result.message
    return result.code


def test_v25_the_seed_is_eleven_events_and_one_legal_move(make: Make) -> None:
    graph = make(seed=True)
    types = [row.type for row in graph.store.read(GRAPH)]
    assert types == ["NodeUpserted"] * 4 + ["EdgeUpserted"] * 5 + ["ZoneDefined", "CursorMoved"]
    assert len(types) == graph.store.head().seq == 11
    (zone,) = graph.zones()
    assert (zone.name, zone.intra, zone.boundary) == ("safe", "off", "hard")
    assert zone.members == ("done", "idle", "verifying", "working")
    assert graph.cursor() == ["idle"]
    (move,) = graph.legal_moves()
    assert (move.from_, move.to, move.decision, move.enforcement) == ("idle", "working", "allow", "off")
    assert node(graph, "idle").label == "waiting for work"
    assert node(graph, "done").tags == ("seed",)


def test_v26_a_second_remember_keeps_what_is_not_given(make: Make) -> None:
    graph = make()
    graph.remember("n1", label="first", payload={"x": 1})
    graph.remember("n1", payload={"x": 2})
    found = node(graph, "n1")
    assert (found.version, found.label, found.created_seq, found.updated_seq) == (2, "first", 1, 2)
    assert found.payload == {"x": 2}


def test_v27_the_payload_stays_unless_it_is_given(make: Make) -> None:
    graph = make()
    graph.remember("a", payload={"x": 1}, tags=["p"], label="L", kind="fact", embedding=[1, 2])
    returned = graph.remember("a", tags=["q"]).unwrap()
    assert returned == node(graph, "a")
    assert (returned.payload, returned.tags, returned.kind, returned.label, returned.embedding) == (
        {"x": 1}, ("q",), "fact", "L", (1, 2),
    )  # fmt: skip
    assert graph.remember("a", payload=None).unwrap().payload == {}


def test_a_node_holds_its_own_copy_in_the_form_that_is_read_back(make: Make) -> None:
    graph = make()
    given = {"t": (1, 2.0), "list": [1]}
    returned = graph.remember("a", payload=given).unwrap()
    given["list"] = []
    assert returned.payload == {"t": [1, 2], "list": [1]}
    assert returned == node(graph, "a")


def test_a_patch_changes_a_part_of_the_payload(make: Make) -> None:
    graph = make()
    graph.remember("a", payload={"x": 1, "deep": {"y": 2, "z": 3}})
    patched = graph.remember("a", patch={"x": None, "deep": {"y": 5}, "new": [1]}).unwrap()
    assert patched.payload == {"deep": {"y": 5, "z": 3}, "new": [1]}
    assert code(graph.remember("a", patch={}, payload={})) == "InvalidInput"


@pytest.mark.parametrize("id", ["", "bad id!", "bad/id", "_a", "a" * 129, "abc\n", None, 7, b"a", True])
def test_v28_bad_ids_are_refused(make: Make, id: Any) -> None:
    graph = make()
    assert code(graph.remember(id)) == "InvalidInput"
    assert graph.store.head().seq == 0


@pytest.mark.parametrize("id", ["ok_id-1:2.3", "a" * 128, "0"])
def test_v28_good_ids_are_accepted(make: Make, id: str) -> None:
    assert make().remember(id).ok


def test_v29_a_version_that_is_not_expected_is_a_conflict(make: Make) -> None:
    graph = make("a")
    refused = graph.remember("a", expect_version=5)
    assert code(refused) == "Conflict"
    assert isinstance(refused, Fail)
    assert refused.details["current"] == 1
    assert graph.store.head().seq == 1
    assert graph.remember("a", expect_version=1).unwrap().version == 2


def test_v30_an_absent_node_is_at_version_0(make: Make) -> None:
    graph = make()
    assert code(graph.remember("a", expect_version=7)) == "Conflict"
    assert graph.remember("a", expect_version=0).ok
    assert code(graph.remember("a", expect_version=0)) == "Conflict"
    assert code(graph.remember("a", expect_version=True)) == "InvalidInput"


def test_v31_v32_the_payload_is_measured_in_utf8_bytes(make: Make) -> None:
    graph = make()
    graph.set_tunable("maxPayloadBytes", 64)
    assert graph.remember("a", payload={"s": "x" * 56}).ok
    assert code(graph.remember("b", payload={"s": "x" * 57})) == "PayloadTooLarge"
    assert graph.remember("c", payload={"s": "é" * 28}).ok
    assert code(graph.remember("d", payload={"s": "é" * 56})) == "PayloadTooLarge"


def test_v33_an_archived_node_stays_archived(make: Make) -> None:
    graph = make("a", "b")
    archived = graph.archive("a").unwrap()
    assert (archived.status, archived.version, archived.updated_seq) == ("archived", 1, 3)
    assert ids(graph.recall(status="active")) == ["b"]
    assert graph.remember("a").unwrap().status == "archived"
    assert graph.remember("a", status="active").unwrap().status == "active"
    assert graph.deprecate("a").unwrap().status == "deprecated"
    assert graph.set_status("a", "active").unwrap().status == "active"


def test_v34_missing_nodes(make: Make) -> None:
    graph = make()
    assert code(graph.set_status("a", "active")) == "NotFound"
    assert code(graph.archive("a")) == "NotFound"
    assert graph.get_node("a") is None
    assert graph.get_node("not an id!") is None


def library(make: Make, **options: Any) -> Adaptogen:
    graph = make(**options)
    graph.remember("n1", label="alpha beta", payload={"note": "gamma"}, kind="fact", tags=["red"])
    graph.remember("n2", label="alpha delta", kind="task", status="archived")
    return graph


@pytest.mark.parametrize("fts", [True, False])
def test_v35_text_finds_whole_words_in_label_payload_and_tags(make: Make, fts: bool) -> None:
    graph = library(make, fts=fts)
    assert graph.fts_enabled() is fts
    assert ids(graph.recall(text="alpha")) == ["n2", "n1"]  # the shorter one first
    assert ids(graph.recall(text="alpha", status="active")) == ["n1"]
    assert ids(graph.recall(text="gamma")) == ["n1"]
    assert ids(graph.recall(text="red")) == ["n1"]
    assert ids(graph.recall(text="ALPHA")) == ["n2", "n1"]
    assert graph.recall(text="alph") == []


@pytest.mark.parametrize("fts", [True, False])
def test_v36_conditions_are_all_met(make: Make, fts: bool) -> None:
    graph = library(make, fts=fts)
    assert ids(graph.recall(text="alpha", kind="task")) == ["n2"]
    assert ids(graph.recall(text="alpha", tag="red")) == ["n1"]
    assert graph.recall(text="alpha", kind="task", tag="red") == []
    assert ids(graph.recall(id="n1", kind="fact", tag="red", status="active", text="beta")) == ["n1"]
    assert graph.recall(id="n1", kind="task") == []


@pytest.mark.parametrize("fts", [True, False])
def test_v37_the_order_of_words_does_not_matter(make: Make, fts: bool) -> None:
    graph = library(make, fts=fts)
    assert ids(graph.recall(text="alpha beta")) == ["n1"]
    assert ids(graph.recall(text="beta alpha")) == ["n1"]
    assert ids(graph.recall(text="alpha gamma")) == ["n1"]
    assert graph.recall(text="alpha nothing") == []


@pytest.mark.parametrize("fts", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "'; DROP TABLE node; --", 'alpha OR x" *', "alpha NOT beta", "NEAR(alpha beta)", "text:alpha", "^alpha",
        "alph*", '"', "*", "(", "AND", "   ", "", "\x00", "a\x00b", "%", "_", "\u202e", "e\u0301", "🦊", "-- -",
    ],
)  # fmt: skip
def test_v38_no_character_of_a_search_has_a_meaning(make: Make, fts: bool, text: str) -> None:
    graph = library(make, fts=fts)
    assert graph.recall(text=text) == [] or "alpha" in text
    assert len(graph.recall()) == 2


@pytest.mark.parametrize("fts", [True, False])
@pytest.mark.parametrize(
    "text",
    ["Straße", "e\u0301te\u0301", "naïve", "日本語", "Ünïcode", "x\u0000y", "tab\tnew\nline", "a_b", "१२३"],
)
def test_text_finds_its_own_node(make: Make, fts: bool, text: str) -> None:
    graph = make(fts=fts)
    graph.remember("other", payload={"k": "nothing here"})
    graph.remember("label", label=text)
    graph.remember("payload", payload={"deep": [{"k": text}]})
    assert {"label", "payload"} <= set(ids(graph.recall(text=text)))
    assert "other" not in ids(graph.recall(text=text))


def test_v39_tags_match_exactly(make: Make) -> None:
    graph = make()
    graph.remember("a", tags=['say"hi'])
    graph.remember("b", tags=["safe", "safe", "x"])
    assert ids(graph.recall(tag='say"hi')) == ["a"]
    assert graph.recall(tag="saf") == []
    assert node(graph, "b").tags == ("safe", "x")
    graph.remember("b", tags=["x"])
    assert graph.recall(tag="safe") == []
    assert ids(graph.recall(tag="x")) == ["b"]


def test_v40_an_embedding_ranks_by_nearness(make: Make) -> None:
    graph = make("plain")
    assert ids(graph.recall(embedding=[1, 0, 0])) == ["plain"]
    graph.remember("a", embedding=[1, 0, 0])
    graph.remember("b", embedding=[0, 1, 0], kind="fact")
    graph.remember("c", embedding=[0.9, 0.1, 0])
    graph.remember("short", embedding=[1])
    assert ids(graph.recall(embedding=[1, 0, 0], limit=2)) == ["a", "c"]
    assert ids(graph.recall(embedding=[1, 0, 0], kind="fact")) == ["b"]
    assert ids(graph.recall(embedding=[0, 0, 0], limit=1)) == ["a"]


def test_v41_results_are_limited_and_ordered(make: Make) -> None:
    graph = make()
    for i in (3, 1, 4, 0, 2):
        graph.remember(f"k{i}", kind="k")
    assert ids(graph.recall(kind="k", limit=2)) == ["k0", "k1"]
    assert len(graph.recall(kind="k", limit=0)) == 1
    assert ids(graph.recall()) == ["k0", "k1", "k2", "k3", "k4"]
    for limit in (-1, 1_001, 1.5, True, "2", float("nan")):
        with pytest.raises(VerbFailed, match="limit must be"):
            graph.recall(limit=limit)  # type: ignore[arg-type]  # what nobody should pass


def test_text_written_by_another_process_or_left_behind_is_found(make: Make, tmp_path: Any) -> None:
    path = tmp_path / "g.db"
    writer = make(path=path)
    writer.remember("a", label="lighthouse")
    reader = make(path=path, read_only=True)
    assert ids(reader.recall(text="lighthouse")) == ["a"]  # the index is behind: nodes are read
    assert ids(make(path=path).recall(text="lighthouse")) == ["a"]
    assert ids(reader.recall(text="lighthouse")) == ["a"]


def test_text_that_was_rolled_back_is_not_found(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp")
    graph.remember("a", label="lighthouse")
    graph.remember("b", label="lighthouse")
    assert len(graph.recall(text="lighthouse")) == 2
    graph.rollback("cp").unwrap()
    assert graph.recall(text="lighthouse") == []
    graph.remember("c", label="lighthouse")
    assert ids(graph.recall(text="lighthouse")) == ["c"]


BOUNDS = [
    ("id", lambda n: {"id": "x" * n}, 128, "InvalidInput"),
    ("label", lambda n: {"label": "x" * n}, 1_024, "InvalidInput"),
    ("kind", lambda n: {"kind": "x" * n}, 128, "InvalidInput"),
    ("tag", lambda n: {"tags": ["x" * n]}, 128, "InvalidInput"),
    ("tags", lambda n: {"tags": [f"t{i}" for i in range(n)]}, 64, "InvalidInput"),
    ("embedding", lambda n: {"embedding": [0.5] * n}, 8_192, "InvalidInput"),
    ("payload", lambda n: {"payload": "x" * (n - 2)}, 262_144, "PayloadTooLarge"),
    ("cause", lambda n: {"cause": "x" * n}, 256, "InvalidInput"),
]


@pytest.mark.parametrize(("name", "build", "bound", "expected"), BOUNDS, ids=[b[0] for b in BOUNDS])
def test_bounds_are_typed_failures(make: Make, name: str, build: Any, bound: int, expected: str) -> None:
    for n in (bound - 1, bound):
        graph = make()
        assert graph.remember(**{"id": "a"} | build(n)).ok, (name, n)
    before = graph.store.head()
    for n in (bound + 1, 100 * bound):
        refused = graph.remember(**{"id": "a"} | build(n))
        assert code(refused) == expected
        assert str(bound) in refused.message  # type: ignore[union-attr]  # code() has looked
    assert graph.store.head() == before


DEEP: Any = 1
for _ in range(101):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "arguments",
    [
        {"payload": {"x": float("nan")}}, {"payload": {"x": float("inf")}}, {"payload": {1: 2}},
        {"payload": {"x": ...}}, {"payload": {"x": "\ud800"}}, {"payload": {"\udfff": 1}}, {"payload": DEEP},
        {"payload": 10**1001}, {"payload": {1, 2}}, {"label": "\ud800"}, {"label": 7}, {"kind": ""}, {"kind": "a\nb"},
        {"kind": "a\u202eb"}, {"kind": "a\u200bb"}, {"tags": "abc"}, {"tags": [""]}, {"tags": [1]}, {"tags": 7},
        {"tags": ["a\x00"]}, {"status": "Active"}, {"status": "gone"}, {"embedding": [float("nan")]},
        {"embedding": []}, {"embedding": ["1"]}, {"embedding": [True]}, {"embedding": "12"}, {"embedding": [10**400]},
        {"patch": [1]}, {"patch": {"x": float("nan")}}, {"cause": ""}, {"cause": "a\nb"}, {"cause": 7},
        {"expect_version": -1}, {"expect_version": 1.0}, {"expect_version": "1"},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_acceptable_is_refused_and_nothing_changes(make: Make, arguments: dict[str, Any]) -> None:
    graph = make("a")
    before = graph.store.head()
    assert code(graph.remember("a", **arguments)) in {"InvalidInput", "Conflict"}
    assert graph.store.head() == before


def test_minus_zero_and_whole_floats_are_plain_numbers(make: Make) -> None:
    graph = make()
    graph.remember("a", payload=[-0.0, 1.0], embedding=[-0.0, 2.0])
    found = node(graph, "a")
    assert repr(found.payload) == "[0, 1]"
    assert repr(found.embedding) == "(0.0, 2.0)"
    assert graph.verify_integrity(deep=True).ok
