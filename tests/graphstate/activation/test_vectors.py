"""Vectors of a graph: one model, exact search, and all that an event must survive."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Descriptor, ErrorCode, Fail, HashingEmbedder, VerbFailed
from graphstate.events import GRAPH
from graphstate.model import Reembedded
from graphstate.similarity import cosine, packed, unpacked
from graphstate.store import matrix, vectors
from graphstate.store.vectors import Hit
from tests.graphstate.bundles import bundle_of, live, taken_in
from tests.graphstate.conftest import Make

HASHING = HashingEmbedder(dimensions=64)


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def types(graph: Adaptogen) -> list[str]:
    return [row.type for row in graph.store.read(GRAPH)]


def found(graph: Adaptogen, query: Sequence[float], limit: int = 9, **options: Any) -> list[Hit]:
    return graph.store.projection.vectors.search(query, limit, **options)


def nearest(graph: Adaptogen, like: str, limit: int = 9) -> list[str]:
    return [node.id for node in graph.recall(like=like, limit=limit)]


@contextmanager
def without_numpy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "find_spec", lambda name: None)
        yield


@contextmanager
def in_blocks(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "KEPT_BYTES", 0)
        patch.setattr(matrix, "_BLOCK", size)
        yield


def brute(kept: dict[str, list[float]], query: list[float], limit: int, above: float | None) -> list[Hit]:
    exact = unpacked(packed(query))
    hits = [Hit(name, cosine(exact, unpacked(packed(vector)))) for name, vector in kept.items()]
    hits = [hit for hit in hits if above is None or hit.similarity > above]
    return sorted(hits, key=lambda hit: (-hit.similarity, hit.id))[:limit]


NUMBERS = st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5, 3.0]) | st.floats(-2, 2, width=32)
VECTOR = st.lists(NUMBERS, min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(VECTOR, min_size=1, max_size=14),
    VECTOR,
    st.integers(1, 15),
    st.sampled_from([None, 0, 0.3, -0.5]),
)
def test_every_way_of_searching_gives_what_brute_force_gives(
    kept: list[list[float]], query: list[float], limit: int, above: float | None
) -> None:
    named = {f"n{place}": vector for place, vector in enumerate(kept)}
    with Adaptogen.open(seed=False) as graph:
        with graph.unit():
            for name, vector in named.items():
                graph.remember(name, embedding=vector).unwrap()
        expected = brute(named, query, limit, above)
        assert found(graph, query, limit, above=above) == expected
        with in_blocks(4):
            assert found(graph, query, limit, above=above) == expected
        with without_numpy():
            assert found(graph, query, limit, above=above) == expected
        some = list(range(1, len(kept) + 1, 2))
        among = {f"n{no - 1}": named[f"n{no - 1}"] for no in some}
        expected = brute(among, query, limit, above)
        assert found(graph, query, limit, above=above, among=some) == expected
        with without_numpy():
            assert found(graph, query, limit, above=above, among=some) == expected


def test_equal_cosines_come_by_id_and_zero_vectors_are_nobody_s_neighbours(make: Make) -> None:
    graph = make()
    for name, vector in (("c", [2, 2]), ("a", [1, 1]), ("b", [0.5, 0.5]), ("none", [0, 0])):
        graph.remember(name, embedding=vector).unwrap()
    assert found(graph, [3, 3]) == [Hit("a", 1.0), Hit("b", 1.0), Hit("c", 1.0), Hit("none", 0.0)]
    assert [hit.id for hit in found(graph, [3, 3], above=0)] == ["a", "b", "c"]
    assert found(graph, [3, 3], 0) == []


@pytest.mark.parametrize("numpy", [True, False], ids=["numpy", "plain"])
def test_a_search_follows_every_change(make: Make, numpy: bool, tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    graph, other = make(path=path), make(path=path)
    with contextmanager(lambda: iter([None]))() if numpy else without_numpy():
        graph.remember("a", embedding=[1, 0]).unwrap()
        assert found(graph, [1, 0]) == [Hit("a", 1.0)]
        other.remember("b", embedding=[0, 1]).unwrap()  # as another process would
        graph.checkpoint("two").unwrap()
        assert [hit.id for hit in found(graph, [0, 1])] == ["b", "a"]
        other.remember("a", embedding=[0, 2]).unwrap()
        assert [hit.id for hit in graph.recall(embedding=[0, 1])] == ["a", "b"]
        with pytest.raises(RuntimeError), graph.unit():
            graph.remember("c", embedding=[0, 3]).unwrap()
            assert [hit.id for hit in found(graph, [0, 1])] == ["a", "b", "c"]
            raise RuntimeError
        assert [hit.id for hit in found(graph, [0, 1])] == ["a", "b"]
        graph.remember("d", embedding=[1, 0]).unwrap()
        assert found(graph, [1, 0]) == [Hit("d", 1.0), Hit("a", 0.0), Hit("b", 0.0)]
        graph.rollback("two").unwrap()
        assert found(graph, [1, 0]) == [Hit("a", 1.0), Hit("b", 0.0)]
        assert [node.id for node in other.recall(embedding=[1, 0])] == ["a", "b"]


def test_a_large_graph_is_searched_exactly_and_only_what_changed_is_read(make: Make) -> None:
    graph, draw = make(), random.Random(7)
    named = {f"n{place:04}": [draw.gauss(0, 1) for _ in range(24)] for place in range(5_000)}
    with graph.unit():
        for name, vector in named.items():
            graph.remember(name, embedding=vector).unwrap()
    query = [draw.gauss(0, 1) for _ in range(24)]
    assert found(graph, query, 50) == brute(named, query, 50, None)
    kept = graph.store.projection.vectors._kept
    named["n0007"] = query
    graph.remember("n0007", embedding=query).unwrap()
    assert found(graph, query, 50) == brute(named, query, 50, None)
    assert graph.store.projection.vectors._kept is kept


# ------------------------------------------------------------------------------------ one model


def test_the_first_vector_fixes_the_length_of_all(make: Make) -> None:
    graph = make()
    graph.remember("a", embedding=[1, 0, 0]).unwrap()
    refused = graph.remember("b", embedding=[1, 0])
    assert code(refused) == "EmbeddingMismatch"
    assert "has 2 numbers, the vectors of this graph have 3" in refused.message  # type: ignore[union-attr]
    assert graph.get_node("b") is None
    space = graph.store.projection.vectors.space()
    assert space is not None
    assert str(space) == "given/3"


def test_a_vector_is_what_32_bits_hold_wherever_it_is_read(make: Make) -> None:
    graph = make()
    returned = graph.remember("a", embedding=[0.1, 1 / 3]).unwrap()
    assert returned.embedding == unpacked(packed([0.1, 1 / 3])) != (0.1, 1 / 3)
    assert graph.get_node("a") == returned
    assert graph.remember("a", label="new").unwrap().embedding == returned.embedding
    assert code(graph.remember("b", embedding=[1e39, 0])) == "InvalidInput"


def test_texts_are_embedded_as_they_are_remembered(make: Make) -> None:
    graph = make(embedder=HASHING)
    graph.remember("tea", payload={"text": "green tea is hot"}).unwrap()
    graph.remember("sea", label="the sea is cold").unwrap()
    graph.remember("bare", embed=False).unwrap()
    assert types(graph) == ["memory.embedder_set", *["NodeUpserted"] * 3]
    assert nearest(graph, "hot tea") == ["tea", "sea"]
    (hit,) = found(graph, HASHING.embed(["green tea is hot"])[0], 1)
    assert hit == Hit("tea", 1.0)
    before = graph.get_node("tea")
    assert before is not None
    assert graph.remember("tea", tags=["drink"]).unwrap().embedding == before.embedding
    assert "embedding" not in graph.history(limit=1)[0].payload
    changed = graph.remember("tea", payload={"text": "cold sea"}).unwrap()
    assert changed.embedding != before.embedding
    assert nearest(graph, "cold sea", 1) == ["tea"]


def test_embedding_needs_an_embedder_and_says_so(make: Make) -> None:
    graph = make("a")
    for refused in (graph.remember("a", embed=True), graph.reembed()):
        assert code(refused) == "InvalidInput"
        assert "embedder=" in refused.hint  # type: ignore[union-attr]
    with pytest.raises(VerbFailed, match="searching by meaning needs an embedder"):
        graph.recall(like="tea")
    with pytest.raises(VerbFailed, match="either a text or a vector"):
        graph.recall(like="tea", embedding=[1])


def test_a_vector_of_an_older_text_is_dropped_where_nobody_can_make_a_new_one(
    make: Make, tmp_path: Path
) -> None:
    path = tmp_path / "graph.db"
    make(path=path, embedder=HASHING).remember("a", label="tea").unwrap()
    graph = make(path=path)
    assert graph.remember("a", tags=["t"]).unwrap().embedding is not None
    assert graph.remember("a", label="sea").unwrap().embedding is None
    given = make()
    given.remember("a", label="tea", embedding=[1, 0]).unwrap()
    assert given.remember("a", label="sea").unwrap().embedding == (1, 0)


class Broken:
    """Fails as a model does that is not there."""

    def __init__(self, *, after: int = 0, dimensions: int = 8) -> None:
        self.left, self._inner = after, HashingEmbedder(dimensions=dimensions, ngrams=True)

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("no model here")
        return self._inner.embed(texts)

    def descriptor(self) -> Descriptor:
        return self._inner.descriptor()


def test_a_failing_model_is_a_typed_failure_and_nothing_is_kept(make: Make) -> None:
    graph = make(embedder=Broken())
    failed = graph.remember("a", label="tea")
    assert code(failed) == "EmbedderFailed"
    assert "ConnectionError: no model here" in failed.message  # type: ignore[union-attr]
    assert types(graph) == []
    graph.remember("a", label="tea", embed=False).unwrap()
    assert code(graph.reembed()) == "EmbedderFailed"


# ------------------------------------------------------------------------------------ another model


def library(make: Make, **options: Any) -> Adaptogen:
    graph = make(embedder=HASHING, **options)
    for number in range(10):
        graph.remember(f"n{number}", label=f"word{number} and more").unwrap()
    graph.remember("without", label="word3", embed=False).unwrap()
    return graph


def test_another_model_is_refused_until_all_is_made_again(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    library(make, path=path)
    other = HashingEmbedder(dimensions=64, ngrams=True)
    graph = make(path=path, embedder=other)
    refused = graph.remember("new", label="words")
    assert code(refused) == "EmbeddingMismatch"
    assert refused.details == {"stored": "hashing:1/64", "embedder": "ngrams:1/64"}  # type: ignore[union-attr]
    with pytest.raises(VerbFailed) as raised:
        graph.recall(like="word3")
    assert raised.value.code == ErrorCode.EMBEDDING_MISMATCH
    told: list[tuple[int, int]] = []
    done = graph.reembed(batch=4, progress=lambda *so_far: told.append(so_far)).unwrap()
    assert done == Reembedded(embedded=11, left=0, model="ngrams:1/64")
    assert told == [(4, 11), (8, 11), (11, 11)]
    assert nearest(graph, "word3", 1) == ["without"]
    assert all(hit.similarity < 1 for hit in found(graph, other.embed(["word3"])[0], 20)[1:])
    assert graph.get_node("n3").version == 1  # type: ignore[union-attr]  # it is there
    assert graph.verify_integrity(deep=True).ok
    assert graph.reembed().unwrap().embedded == 0


@pytest.mark.parametrize("nodes", [0, 3])
def test_a_search_follows_a_model_of_other_dimensions_in_the_same_process(make: Make, nodes: int) -> None:
    graph = make(embedder=HashingEmbedder(dimensions=4))
    for number in range(nodes):
        graph.remember(f"n{number}", label=f"word{number}").unwrap()
    for dimensions in (4, 16, 8, 4):
        graph.embedder = HashingEmbedder(dimensions=dimensions)
        graph.reembed().unwrap()
        for number in range(nodes):
            assert found(graph, graph.embedder.embed([f"word{number}"])[0], 1)[0].similarity == 1
        assert len(graph.recall(like="word0")) == nodes
        assert graph.pulse("nothing").seeds <= nodes


def test_reembedding_goes_on_where_it_was_interrupted(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    library(make, path=path)
    graph = make(path=path, embedder=Broken(after=2, dimensions=64))
    assert code(graph.reembed(batch=3)) == "EmbedderFailed"
    graph.embedder = HashingEmbedder(dimensions=64, ngrams=True)
    with pytest.raises(VerbFailed) as raised:
        graph.recall(like="word3")
    assert raised.value.details["waiting"] == 4
    assert "reembed" in raised.value.hint
    vector = graph.embedder.embed(["word3"])[0]
    searches: list[Callable[[], Any]] = [
        lambda: graph.pulse(vector),
        lambda: graph.pulse("word3", vector=vector),
        lambda: graph.recognise({"text": "word3"}, vector=vector),
        lambda: graph.absorb(vector).unwrap(),
    ]
    for search in searches:  # a vector that the caller has would miss what is not made yet, too
        with pytest.raises(VerbFailed) as raised:
            search()
        assert raised.value.code == ErrorCode.EMBEDDING_MISMATCH
    assert graph.reembed(batch=3, limit=1).unwrap() == Reembedded(embedded=1, left=4, model="ngrams:1/64")
    assert graph.reembed(missing=False).unwrap().embedded == 3
    assert nearest(graph, "word3", 1) == ["n3"]
    assert graph.store.projection.vectors.todo_count(missing=True) == 1


def test_a_node_that_changes_while_the_model_works_keeps_its_own_vector(make: Make) -> None:
    graph = make("a", "b")

    class Meddling(HashingEmbedder):
        def embed(self, texts: Sequence[str], /) -> list[list[float]]:
            if len(texts) == 2:
                graph.remember("a", label="changed meanwhile").unwrap()
            return super().embed(texts)

    graph.embedder = Meddling(dimensions=32)
    graph.reembed().unwrap()
    assert nearest(graph, "changed meanwhile", 1) == ["a"]
    assert found(graph, HASHING.embed(["x"])[0][:32]) is not None


def test_a_cause_makes_reembedding_happen_once(make: Make) -> None:
    graph = make("a", embedder=HASHING)
    first = graph.reembed(cause="once")
    graph.remember("b", embed=False).unwrap()
    again = graph.reembed(cause="once")
    assert again.unwrap() == first.unwrap()
    assert again.repeated  # type: ignore[union-attr]  # it is Ok


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": 1_001}, {"batch": True}, {"limit": -1}, {"limit": 1.5}]
)
def test_bounds_of_reembedding(make: Make, options: dict[str, Any]) -> None:
    assert code(make("a", embedder=HASHING).reembed(**options)) == "InvalidInput"


def test_what_is_kept_in_one_event_has_a_bound(make: Make) -> None:
    graph = make(embedder=HashingEmbedder(dimensions=8_192))
    with graph.unit():
        for number in range(40):
            graph.remember(f"n{number}", label=f"word{number}", embed=False).unwrap()
    assert graph.reembed(batch=40).unwrap().embedded == 40
    sizes = [len(row.body) for row in graph.store.read(GRAPH) if row.type == "memory.embedded"]
    assert len(sizes) == 3
    assert max(sizes) < 1_000_000


# ------------------------------------------------------------------------------------ events


def lived(make: Make, **options: Any) -> Adaptogen:
    """Vectors that were given, made, made again, dropped."""
    graph = library(make, **options)
    graph.embedder = HashingEmbedder(dimensions=32, ngrams=True)
    graph.reembed(batch=3).unwrap()
    graph.remember("given", embedding=[1.0] * 32).unwrap()
    graph.embedder = None
    graph.remember("n1", label="of another text").unwrap()
    return graph


def test_replay_gives_the_same_vectors(make: Make) -> None:
    graph = lived(make)
    before = live(graph)
    assert len(before["vector"]) == 11
    graph.rebuild().unwrap()
    assert live(graph) == before
    assert graph.verify_integrity(deep=True).ok


def test_a_rollback_brings_vectors_and_model_back(make: Make) -> None:
    graph = library(make)
    graph.checkpoint("before").unwrap()
    before = live(graph)
    graph.embedder = HashingEmbedder(dimensions=32)
    graph.reembed().unwrap()
    graph.rollback("before").unwrap()
    assert live(graph) == before
    graph.embedder = HASHING
    assert nearest(graph, "word3", 1) == ["n3"]


@pytest.mark.parametrize("compacted", [False, True], ids=["all events", "a base"])
def test_a_bundle_carries_vectors(make: Make, compacted: bool) -> None:
    graph = lived(make)
    if compacted:
        graph.compact(retain=0).unwrap()
    with taken_in(bundle_of(graph)) as copy:
        assert live(copy)["vector"] == live(graph)["vector"]
        assert copy.store.projection.vectors.space() == graph.store.projection.vectors.space()
        assert copy.verify_integrity(deep=True).ok
        assert found(copy, [1.0] * 32) == found(graph, [1.0] * 32)


def test_vectors_of_a_branch_come_back(make: Make) -> None:
    graph = library(make)
    branch = graph.branch(":memory:").unwrap()
    branch.remember("idea", label="a new idea").unwrap()
    graph.merge(branch).unwrap()
    assert nearest(graph, "a new idea", 1) == ["idea"]
    branch.discard()


def test_vectors_of_another_model_that_come_from_a_branch_wait_to_be_made_again(make: Make) -> None:
    graph = library(make)
    branch = graph.branch(":memory:").unwrap()
    branch.remember("idea", label="a new idea").unwrap()
    graph.embedder = HashingEmbedder(dimensions=32)
    graph.reembed().unwrap()
    graph.merge(branch).unwrap()
    branch.discard()
    assert graph.store.projection.vectors.counts() == (11, 1)
    with pytest.raises(VerbFailed, match="1 vectors are to be made again"):
        graph.recall(like="idea")
    graph.reembed().unwrap()
    assert nearest(graph, "a new idea", 1) == ["idea"]


def test_split_and_merged_nodes_keep_their_vectors(make: Make) -> None:
    graph = make("a", "b")
    graph.remember("a", embedding=[1, 0]).unwrap()
    graph.link("a", "b", id="ab").unwrap()
    graph.split_state("a", "copy", ["ab"]).unwrap()
    assert graph.get_node("copy").embedding == (1, 0)  # type: ignore[union-attr]  # it was made
    graph.merge_states("b", "copy").unwrap()
    assert graph.get_node("b").embedding == (1, 0)  # type: ignore[union-attr]  # it was joined


# ------------------------------------------------------------------------------------ choosing


def test_embedders_are_found_by_name(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with pytest.raises(VerbFailed, match="did you mean 'hashing'"):
        make(embedder="hashin")
    with pytest.raises(VerbFailed, match="has the methods embed and descriptor"):
        make(embedder=7)
    assert make(path=path, embedder="stored").embedder is None
    make(path=path, embedder=HashingEmbedder(dimensions=12, ngrams=True)).remember("a", label="tea").unwrap()
    stored = make(path=path, embedder="stored")
    assert stored.embedder is not None
    assert str(stored.embedder.descriptor()) == "ngrams:1/12"
    assert stored.as_actor("other").embedder is stored.embedder


def test_a_model_that_is_not_installed_is_no_reason_not_to_open(make: Make, tmp_path: Path) -> None:
    class Elsewhere(HashingEmbedder):
        def descriptor(self) -> Descriptor:
            return Descriptor(provider="elsewhere", dimensions=384)

    path = tmp_path / "graph.db"
    make(path=path, embedder=Elsewhere()).remember("a", label="tea").unwrap()
    assert make(path=path, embedder="stored").embedder is None


# ------------------------------------------------------------------------------------ many vectors


def scattered(count: int, *, seed: int = 3, groups: int = 40) -> list[list[float]]:
    """Vectors around some centres, as those of texts about some subjects lie."""
    draw = random.Random(seed)
    centres = [[draw.gauss(0, 1) for _ in range(16)] for _ in range(groups)]
    return [[x + draw.gauss(0, 0.5) for x in draw.choice(centres)] for _ in range(count)]


@pytest.fixture
def many(make: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Adaptogen, dict[str, list[float]]]:
    monkeypatch.setattr(matrix, "EXACT_UPTO", 500)
    graph = make()
    named = {f"n{place:04}": vector for place, vector in enumerate(scattered(2_000))}
    with graph.unit():
        for name, vector in named.items():
            graph.remember(name, embedding=vector).unwrap()
    return graph, named


def test_many_vectors_are_searched_by_clusters_and_nearly_all_that_is_near_is_found(
    many: tuple[Adaptogen, dict[str, list[float]]],
) -> None:
    graph, named = many
    queries = scattered(40, seed=3)
    shared = 0
    for query in queries:
        best = brute(named, query, 10, None)
        assert found(graph, query, 10, exact=True) == best
        hits = found(graph, query, 10)
        assert len(hits) == 10
        assert hits == sorted(hits, key=lambda hit: (-hit.similarity, hit.id))
        assert set(hits) <= set(brute(named, query, len(named), None))
        shared += len(set(hits) & set(best))
    assert shared / (10 * len(queries)) > 0.9


def test_a_search_by_clusters_is_never_shorter_than_asked(
    many: tuple[Adaptogen, dict[str, list[float]]],
) -> None:
    graph, named = many
    query = scattered(1)[0]
    for limit in (1, 600, 1_999, 2_000, 5_000):
        assert len(found(graph, query, limit)) == min(limit, 2_000)
    assert found(graph, query, 2_000) == brute(named, query, 2_000, None)
    assert found(graph, query, 50, above=0.999) == brute(named, query, 50, 0.999)
    assert found(graph, query, 5, among=range(1, 30)) == brute(
        {name: named[name] for name in list(named)[:29]}, query, 5, None
    )


def test_what_changes_is_found_whatever_group_it_was_in(
    many: tuple[Adaptogen, dict[str, list[float]]],
) -> None:
    graph, named = many
    query = [-5.0] * 16
    found(graph, query, 1)
    graph.remember("n0003", embedding=query).unwrap()
    graph.remember("new", embedding=query).unwrap()
    assert [hit.id for hit in found(graph, query, 2)] == ["n0003", "new"]
    kept = graph.store.projection.vectors._kept
    assert kept is not None
    assert (len(kept._loose), len(kept)) == (1, 2_001)
    with graph.unit():
        for place, vector in enumerate(scattered(300, seed=9)):
            graph.remember(f"more{place}", embedding=vector).unwrap()
            named[f"more{place}"] = vector
    assert [hit.id for hit in found(graph, query, 2)] == ["n0003", "new"]
    assert kept._loose == set()  # all were grouped anew
    named |= {"n0003": query, "new": query}
    assert found(graph, query, 9, exact=True) == brute(named, query, 9, None)


def test_clusters_are_the_same_each_time(many: tuple[Adaptogen, dict[str, list[float]]], make: Make) -> None:
    graph, named = many
    again = make()
    with again.unit():
        for name, vector in named.items():
            again.remember(name, embedding=vector).unwrap()
    for query in scattered(20, seed=4):
        assert found(graph, query, 20) == found(again, query, 20)
