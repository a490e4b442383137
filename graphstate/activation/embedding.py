"""Embedders: what turns texts into vectors, and the two that need no model.

An embedder is any object with `embed` and `descriptor`. Those here hash words into buckets:
the same text gives the same vector on every machine, but only shared words, or with
``ngrams`` shared parts of words, make texts similar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from graphstate._canonical import Json
from graphstate.similarity import LARGEST

__all__ = (
    "AsyncEmbedder",
    "Descriptor",
    "Embedder",
    "EmbedderError",
    "HashingEmbedder",
    "aembed",
    "build_embedding_text",
    "embed",
    "node_text",
)

Vector: TypeAlias = Sequence[float]

#: Numbers a vector may have.
MAX_DIMENSIONS = 8_192


class EmbedderError(ValueError):
    """An embedder, or what it gave, cannot be used; the message says what was wrong."""


class Descriptor(Struct, frozen=True, kw_only=True):
    """What tells the vectors of one model from those of another."""

    #: the embedder, by the name under which it is found again
    provider: str
    #: the model behind it; may be empty
    model: str = ""
    dimensions: int
    #: changes whenever the same text would give another vector
    version: str = ""

    def __str__(self) -> str:
        name = ":".join(part for part in (self.provider, self.model, self.version) if part)
        return f"{name}/{self.dimensions}"


class Embedder(Protocol):
    """Makes vectors of texts."""

    def embed(self, texts: Sequence[str], /) -> Sequence[Vector]:
        """Return one vector for each text, in the same order; equal texts give equal vectors."""

    def descriptor(self) -> Descriptor:
        """Return what these vectors are; it costs nothing and never changes."""


class AsyncEmbedder(Protocol):
    """The same for a model that is waited for, such as one behind a network."""

    def embed(self, texts: Sequence[str], /) -> Awaitable[Sequence[Vector]]:
        """Return one vector for each text, once awaited."""

    def descriptor(self) -> Descriptor:
        """Return what these vectors are."""


def embed(embedder: Embedder | AsyncEmbedder, texts: Sequence[str]) -> list[list[float]]:
    """Return the vectors of some texts, checked: as many as texts, of the declared length, finite.

    Raises:
        EmbedderError: A text is none, or the answer is not what it must be, or has to be awaited.
    """
    given = _texts(texts)
    answer = embedder.embed(given)
    if isinstance(answer, Awaitable):
        if isinstance(answer, Coroutine):
            answer.close()  # so that nobody is told it was never awaited
        raise EmbedderError(
            f"{embedder.descriptor()} answers asynchronously: await `aembed` and hand the vectors over"
        )
    return _checked(embedder.descriptor(), given, answer)


async def aembed(embedder: Embedder | AsyncEmbedder, texts: Sequence[str]) -> list[list[float]]:
    """Return the same, and wait for an embedder that answers asynchronously.

    Raises:
        EmbedderError: As for `embed`.
    """
    given = _texts(texts)
    answer = embedder.embed(given)
    return _checked(embedder.descriptor(), given, await answer if isinstance(answer, Awaitable) else answer)


def _texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise EmbedderError("texts must be a list of texts, not one text")
    for text in texts:
        if not isinstance(text, str):
            raise EmbedderError(f"only text can be embedded, not {type(text).__name__}")
    return list(texts)


def _checked(told: Descriptor, texts: Sequence[str], answer: Any) -> list[list[float]]:
    if type(told.dimensions) is not int or not 0 < told.dimensions <= MAX_DIMENSIONS:
        raise EmbedderError(
            f"{told.provider} declares {told.dimensions!r} dimensions, not 1 to {MAX_DIMENSIONS}"
        )
    try:
        vectors = [[float(number) for number in vector] for vector in answer]
    except (TypeError, ValueError) as error:
        raise EmbedderError(f"{told} did not answer with lists of numbers: {error}") from None
    if len(vectors) != len(texts):
        raise EmbedderError(f"{told} gave {len(vectors)} vectors for {len(texts)} texts")
    for vector in vectors:
        if len(vector) != told.dimensions:
            raise EmbedderError(f"{told} gave a vector of {len(vector)} dimensions")
        if not all(-LARGEST <= number <= LARGEST for number in vector):
            raise EmbedderError(f"{told} gave a number that is not finite in 32 bits")
    return vectors


# --------------------------------------------------------------------------------- what is embedded


def build_embedding_text(fields: Mapping[str, str], *, weights: Mapping[str, int] | None = None) -> str:
    """Return the fields that are not empty, each as often as its weight says (1 unless given), with spaces.

    Raises:
        EmbedderError: A weight is no whole number from 0, or names no field.
    """
    told = weights or {}
    for name, weight in told.items():
        if name not in fields or type(weight) is not int or weight < 0:
            raise EmbedderError(
                f"weight {name}={weight!r} must be a whole number from 0 for one of {', '.join(fields)}"
            )
    return " ".join(text for name, text in fields.items() if text for _ in range(told.get(name, 1)))


def node_text(id: str, label: str, payload: Json) -> str:
    """Return the text of a node that is embedded: its label unless that is its id, and what its
    payload says. Tags and the keys of the payload are names, not what is said, and are left out."""
    return build_embedding_text({"label": "" if label == id else label, "payload": " ".join(_said(payload))})


def _said(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from _said(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _said(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


# ------------------------------------------------------------------------------------- without a model

_WORD = re.compile(r"[^\W_]+")
_FIRST, _SECOND = 0x811C9DC5, 0x6B8B4567
_MASK = 0xFFFFFFFF


class HashingEmbedder:
    """Vectors of words, hashed into buckets: deterministic, without a model or a download.

    Each word counts one in its bucket, and the vector is scaled to length 1; text without a word
    gives zeros. With ``ngrams`` each word also counts by its groups of three letters, which
    together weigh as much as the word, and each part adds or subtracts, so that parts that share
    a bucket cancel out instead of looking alike. About 15 us a word the first time, then 1 us.

    Args:
        dimensions: How many buckets.
        ngrams: Let parts of words count. Such vectors are of another provider.

    Raises:
        EmbedderError: ``dimensions`` is no whole number from 1 to 8,192.
    """

    __slots__ = ("_descriptor", "_dimensions", "_parts")

    def __init__(self, *, dimensions: int = 384, ngrams: bool = False) -> None:
        if type(dimensions) is not int or not 0 < dimensions <= MAX_DIMENSIONS:
            raise EmbedderError(
                f"dimensions must be an integer from 1 to {MAX_DIMENSIONS}, not {dimensions!r}"
            )
        self._dimensions = dimensions
        self._parts = _word_and_grams if ngrams else _word
        self._descriptor = Descriptor(
            provider="ngrams" if ngrams else "hashing", dimensions=dimensions, version="1"
        )

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return one vector for each text."""
        return [self._vector(text) for text in texts]

    def descriptor(self) -> Descriptor:
        """Return provider ``hashing``, or ``ngrams``."""
        return self._descriptor

    def _vector(self, text: str) -> list[float]:
        counts: dict[int, float] = {}
        for word in _WORD.findall(text.lower()):
            for hashed, weight in self._parts(word):
                bucket = hashed % self._dimensions
                counts[bucket] = counts.get(bucket, 0.0) + weight
        vector = [0.0] * self._dimensions
        length = math.sqrt(math.fsum(count * count for count in counts.values()))
        if length:
            for bucket, count in counts.items():
                vector[bucket] = count / length
        return vector


def _hash(word: str) -> int:
    """Mix two hashes over the 16-bit units of a word, as other implementations do."""
    first, second = _FIRST, _SECOND
    data = word.encode("utf-16-le", "surrogatepass")
    for low, high in zip(data[::2], data[1::2], strict=True):
        unit = low | high << 8
        first = (first ^ unit) * 0x01000193 & _MASK
        second = (second ^ unit) * 0x5BD1E995 & _MASK
    return first ^ second


@lru_cache(maxsize=65_536)
def _word(word: str) -> tuple[tuple[int, float], ...]:
    return ((_hash(word), 1.0),)


@lru_cache(maxsize=65_536)
def _word_and_grams(word: str) -> tuple[tuple[int, float], ...]:
    edged = f"^{word}$"
    grams = [edged[start : start + 3] for start in range(len(edged) - 2)]
    share = 1 / math.sqrt(len(grams))
    return (_signed(word, 1.0), *(_signed(f"#{gram}", share) for gram in grams))


def _signed(part: str, weight: float) -> tuple[int, float]:
    # Parts are short, and the low bits of their hashes alike: all bits are mixed before one of
    # them decides whether the part adds or subtracts.
    hashed = _hash(part)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed & 0x7FFFFFFF, -weight if hashed >> 31 else weight
