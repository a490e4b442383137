"""Vectors 75 to 78: cosines, exact search, hashed words. And what an embedder must be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphstate.activation.embedding import (
    Descriptor,
    EmbedderError,
    HashingEmbedder,
    aembed,
    build_embedding_text,
    embed,
    node_text,
)
from graphstate.errors import ErrorCode, VerbFailed
from graphstate.similarity import cosine, euclidean, packed, unpacked
from tests.graphstate.conftest import Make


def test_v75_cosine_and_euclidean_similarity() -> None:
    assert cosine([1, 0], [2, 0]) == 1
    assert cosine([1, 0], [0, 0]) == 0
    assert cosine([1, 0], [-1, 0]) == -1
    assert euclidean([0, 0], [3, 4]) == pytest.approx(1 / 6)
    for compare in (cosine, euclidean):
        with pytest.raises(ValueError, match="2 dimensions cannot be compared with one of 3"):
            compare([1, 0], [1, 0, 0])


def test_v75_opposites_are_found_unless_a_floor_leaves_them_out(make: Make) -> None:
    graph = make()
    graph.remember("same", embedding=[2, 0]).unwrap()
    graph.remember("none", embedding=[0, 0]).unwrap()
    graph.remember("opposite", embedding=[-1, 0]).unwrap()
    search = graph.store.projection.vectors.search
    assert search([1, 0], 9) == [("same", 1.0), ("none", 0.0), ("opposite", -1.0)]
    assert search([1, 0], 9, above=0) == [("same", 1.0)]
    assert search([1, 0], 9, above=-1) == [("same", 1.0), ("none", 0.0)]
    assert search([0, 0], 9, above=0) == []


def test_v76_the_three_nearest_of_five(make: Make) -> None:
    graph = make()
    for name, vector in (
        ("w", [0, 1, 0]), ("u", [0, 0, 1]), ("z", [0.6, 0.8, 0]), ("y", [0.8, 0.6, 0]), ("x", [1, 0, 0]),
    ):  # fmt: skip
        graph.remember(name, embedding=vector).unwrap()
    hits = graph.store.projection.vectors.search([1, 0, 0], 3)
    assert [hit.id for hit in hits] == ["x", "y", "z"]
    assert [hit.similarity for hit in hits] == pytest.approx([1, 0.8, 0.6], abs=1e-7)
    assert [node.id for node in graph.recall(embedding=[1, 0, 0], limit=3)] == ["x", "y", "z"]
    with pytest.raises(ValueError, match="query of 2 dimensions"):
        graph.store.projection.vectors.search([1, 0], 3)
    with pytest.raises(VerbFailed) as raised:
        graph.recall(embedding=[1, 0])
    assert raised.value.code == ErrorCode.EMBEDDING_MISMATCH


def buckets(text: str) -> dict[int, float]:
    (vector,) = embed(HashingEmbedder(), [text])
    return {place: value for place, value in enumerate(vector) if value}


def test_v77_words_fall_into_known_buckets() -> None:
    assert list(buckets("vector")) == [64]
    assert list(buckets("search")) == [68]
    assert list(buckets("DATABASE")) == [194]
    assert buckets("vector search") == pytest.approx({64: math.sqrt(0.5), 68: math.sqrt(0.5)})
    assert buckets("vector_vector, search!") == pytest.approx(
        {64: 0.8944271909999159, 68: 0.4472135954999579}
    )
    assert buckets("") == buckets("!!!") == {}
    assert len(embed(HashingEmbedder(), [""])[0]) == 384


def test_v78_only_shared_words_are_similar() -> None:
    a, b, c, d = embed(
        HashingEmbedder(),
        [
            "vector database nearest neighbor search",
            "vector search database",
            "vector index query embeddings",
            "milk eggs bread shopping list",
        ],
    )
    assert cosine(a, b) == pytest.approx(3 / math.sqrt(15), abs=1e-9)
    assert cosine(c, b) == pytest.approx(1 / math.sqrt(12), abs=1e-9)
    assert cosine(d, b) == 0


def test_parts_of_words_are_similar_with_ngrams_and_are_of_another_provider() -> None:
    hashing, ngrams = HashingEmbedder(), HashingEmbedder(ngrams=True)
    one, other, far = "cats sleeping", "cat sleeps", "quarterly tax report"
    assert cosine(*embed(hashing, [one, other])) == 0
    assert cosine(*embed(ngrams, [one, other])) > 0.15
    assert abs(cosine(*embed(ngrams, [one, far]))) < 0.1
    assert ngrams.descriptor() != hashing.descriptor()
    assert str(ngrams.descriptor()) == "ngrams:1/384"


@given(st.text(max_size=60), st.sampled_from([False, True]))
def test_a_hashed_vector_has_length_one_or_none_at_all(text: str, ngrams: bool) -> None:
    (vector,) = embed(HashingEmbedder(dimensions=16, ngrams=ngrams), [text])
    length = math.hypot(*vector)
    assert length == pytest.approx(1) or length == 0
    assert embed(HashingEmbedder(dimensions=16, ngrams=ngrams), [text]) == [vector]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_bytes_of_a_vector_hold_its_32_bits(vector: list[float]) -> None:
    assert unpacked(packed(vector)) == tuple(vector)


@pytest.mark.parametrize("dimensions", [0, -1, 8_193, True, 1.5])
def test_a_number_of_dimensions_is_a_positive_integer(dimensions: Any) -> None:
    with pytest.raises(EmbedderError, match="dimensions must be an integer from 1 to 8192"):
        HashingEmbedder(dimensions=dimensions)


def test_fields_are_repeated_by_weight() -> None:
    fields = {"title": "caches", "body": "they go stale", "empty": ""}
    assert build_embedding_text(fields) == "caches they go stale"
    assert build_embedding_text(fields, weights={"title": 3, "body": 0}) == "caches caches caches"
    for weights in ({"tilte": 1}, {"title": -1}, {"title": 1.5}, {"title": True}):
        with pytest.raises(EmbedderError, match="whole number from 0"):
            build_embedding_text(fields, weights=weights)  # type: ignore[arg-type]  # that is the point


def test_the_text_of_a_node_is_what_it_says() -> None:
    payload = {"text": "tea is hot", "more": ["and", {"x": 3, "y": None, "a": True}]}
    assert node_text("n1", "n1", payload) == "and 3 tea is hot"
    assert node_text("n1", "Tea", "only text") == "Tea only text"
    assert node_text("n1", "n1", {}) == ""


class Told:
    """Answers whatever it was made with."""

    def __init__(self, answer: Any, dimensions: Any = 2) -> None:
        self.answer, self.dimensions = answer, dimensions

    def embed(self, texts: Sequence[str], /) -> Any:
        return self.answer

    def descriptor(self) -> Descriptor:
        return Descriptor(provider="told", dimensions=self.dimensions)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([], "0 vectors for 1 texts"), ([[1, 0], [1, 0]], "2 vectors for 1 texts"), ([[1]], "1 dimensions"),
        ([[1, math.nan]], "not finite"), ([[1, math.inf]], "not finite"), ([[1, 1e39]], "not finite"),
        ([["a", 1]], "lists of numbers"), (None, "lists of numbers"), ([[]], "0 dimensions"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_vector_is_refused(answer: Any, problem: str) -> None:
    with pytest.raises(EmbedderError, match=problem):
        embed(Told(answer), ["text"])


def test_only_texts_are_embedded() -> None:
    for texts in ("text", [b"text"], [None]):
        with pytest.raises(EmbedderError, match="text"):
            embed(HashingEmbedder(), texts)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(EmbedderError, match="'2' dimensions"):
        embed(Told([[1, 0]], dimensions="2"), ["text"])


class Slow:
    """Answers once it was awaited."""

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        await anyio.lowlevel.checkpoint()
        return [[1.0, float(len(text))] for text in texts]

    def descriptor(self) -> Descriptor:
        return Descriptor(provider="slow", dimensions=2)


def test_an_embedder_that_is_awaited_says_so() -> None:
    with pytest.raises(EmbedderError, match="asynchronously: await `aembed`"):
        embed(Slow(), ["text"])


@pytest.mark.anyio
async def test_either_kind_of_embedder_can_be_awaited() -> None:
    assert await aembed(Slow(), ["text"]) == [[1.0, 4.0]]
    assert await aembed(HashingEmbedder(dimensions=1), ["text"]) == [[1.0]]
