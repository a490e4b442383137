"""BM25 over postings that grow: what was added is found by the next query.

A query walks the postings of its words from the rarest to the commonest. What a word adds to
its documents is worked out when the word is first asked for, and anew when the collection has
changed. A document that has only the words still to come is passed over once they cannot lift
it among the best, and a word that is asked for often has its documents in order, so that the
walk stops early. What is left is scored exactly, in the order of the query's words, and ranked
before it is cut.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import Any, Final

from agentloop._numbers import check_amount, check_share
from agentloop.context.retrieval import Passage
from agentloop.context.words import WordRule

__all__ = ("Bm25Index", "Bm25Retriever", "Document")

#: Postings for which the scores are kept from one query to the next: so many, or half of all.
_KEPT: Final = 500_000
#: As often a word has to be asked for, with nothing changed, until its documents are put in order.
_ASKED_OFTEN: Final = 3
#: Sums in another order may differ by this part; what is nearer is compared exactly.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Document:
    """A text that can be found."""

    id: str
    text: str
    metadata: Mapping[str, Any] | None = None


class Bm25Index:
    """Documents, found by their words. One document costs its own words, to add and to remove.

    Args:
        k1: How soon more of the same word counts no more.
        b: 0..1: how much long documents are held back.
        words: How texts are split.
    """

    __slots__ = (
        "_documents", "_impacts", "_kept", "_lengths", "_numbers", "_postings", "_size", "_total", "_vacant", "b", "k1", "words",
    )  # fmt: skip

    def __init__(self, *, k1: float = 1.2, b: float = 0.75, words: WordRule | None = None) -> None:
        check_amount("k1", k1)
        check_share("b", b)
        self.k1, self.b, self.words = k1, b, words or WordRule()
        #: By number; numbers of removed documents are given again.
        self._documents: list[Document | None] = []
        self._lengths: list[int] = []
        self._numbers: dict[str, int] = {}
        self._vacant: list[int] = []
        #: Word to the documents that have it, and how often.
        self._postings: dict[str, dict[int, int]] = {}
        #: Words of all documents, and postings.
        self._total = self._size = 0
        self._impacts: dict[str, _Impacts] = {}
        self._kept = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def add(self, document: Document) -> None:
        """Add a document; one of the same id is replaced."""
        if document.id in self._numbers:
            self.remove(document.id)
        words = self.words(document.text)
        if self._vacant:
            number = self._vacant.pop()
            self._documents[number], self._lengths[number] = document, len(words)
        else:
            number = len(self._documents)
            self._documents.append(document)
            self._lengths.append(len(words))
        self._numbers[document.id] = number
        self._total += len(words)
        postings, counted = self._postings, Counter(words)
        self._size += len(counted)
        for word, times in counted.items():
            if word in postings:
                postings[word][number] = times
            else:
                postings[word] = {number: times}
        self._forget()

    def remove(self, id: str) -> bool:
        """Remove a document; False if there is none of that id."""
        number = self._numbers.pop(id, None)
        if number is None:
            return False
        for word in set(self.words(self._document(number).text)):
            holders = self._postings[word]
            del holders[number]
            self._size -= 1
            if not holders:
                del self._postings[word]
        self._total -= self._lengths[number]
        self._documents[number], self._lengths[number] = None, 0
        self._vacant.append(number)
        self._forget()
        return True

    def _forget(self) -> None:
        if self._impacts:  # every average has moved
            self._impacts, self._kept = {}, 0

    # ------------------------------------------------------------------------------- asking

    def search(
        self, query: str, k: int, *, tie: Callable[[Document], Any] = attrgetter("id")
    ) -> list[Passage]:
        """Return the ``k`` best documents for a query, best first.

        Args:
            query: Its words; one that stands twice counts twice.
            k: How many at most.
            tie: What orders documents of equal score, the least first; their ids by default.
        """
        words = [word for word in self.words(query) if word in self._postings]
        if not words or k <= 0:
            return []
        times = Counter(words)
        impacts = {word: self._impacts_of(word) for word in times}
        found: list[tuple[float, Any, int]] = []
        for number in _candidates([(impacts[word], count) for word, count in times.items()], k):
            score = 0.0
            for word in words:
                score += impacts[word].by_number.get(number, 0.0)
            if score > 0:
                found.append((-score, tie(self._document(number)), number))
        found.sort()
        return [self._passage(number, -score) for score, _, number in found[:k]]

    def _document(self, number: int) -> Document:
        document = self._documents[number]
        assert document is not None, "a number that is given out has its document"
        return document

    def _passage(self, number: int, score: float) -> Passage:
        document = self._document(number)
        return Passage(id=document.id, text=document.text, score=score, metadata=document.metadata or {})

    def _impacts_of(self, word: str) -> _Impacts:
        found = self._impacts.pop(word, None)
        if found is not None:
            self._impacts[word] = found  # now the last one to go
            return found
        postings, lengths, count = self._postings[word], self._lengths, len(self._numbers)
        average = self._total / count
        idf = math.log(1 + (count - len(postings) + 0.5) / (len(postings) + 0.5))
        k1, b, more = self.k1, self.b, self.k1 + 1
        flat, steep = k1 * (1 - b), k1 * b / average
        made = _Impacts(
            {
                number: idf * times * more / (times + flat + steep * lengths[number])
                for number, times in postings.items()
            }
        )
        self._impacts[word] = made
        self._kept += len(postings)
        most = max(_KEPT, self._size // 2)
        while self._kept > most and len(self._impacts) > 1:
            self._kept -= len(self._impacts.pop(next(iter(self._impacts))).by_number)
        return made


class _Impacts:
    """What a word adds to the score of each document that has it, and the most it adds to any."""

    __slots__ = ("_asked", "_ordered", "by_number", "top")

    def __init__(self, by_number: dict[int, float]) -> None:
        self.by_number, self.top = by_number, max(by_number.values())
        self._asked, self._ordered = 0, [0][:0]

    def ordered(self) -> list[int] | None:
        """Return the documents by what the word adds, most first.

        None at first: the order is worth its making where the collection stays as it is.
        """
        if not self._ordered:
            self._asked += 1
            if self._asked < _ASKED_OFTEN:
                return None
            self._ordered = sorted(self.by_number, key=self.by_number.__getitem__, reverse=True)
        return self._ordered


def _candidates(asked: Sequence[tuple[_Impacts, int]], k: int) -> list[int]:
    """Return the numbers of all documents that may be among the ``k`` best.

    Args:
        asked: What each word of the query adds, and how often it stands there.
        k: How many are wanted.
    """
    rarest_first = sorted(asked, key=lambda one: len(one[0].by_number))
    rest = sum([impacts.top * count for impacts, count in asked])
    # What the k-th best has at least: one word's k-th best is already one.
    least = max([_kth(impacts, k) * count for impacts, count in asked])
    scores: dict[int, float] = {}
    for impacts, count in rarest_first:
        # Looking for it costs a walk over the scores: only where the word has many more documents.
        if k <= len(scores) < len(impacts.by_number) / 4:
            least = max(least, _least(scores, k))
        rest -= impacts.top * count
        # A document that is new here needs this much from this word to be one of the best.
        _add(scores, impacts, count, (least - rest) * (1 - _ROUNDING))
    if len(scores) <= k:
        return list(scores)
    least = _least(scores, k) * (1 - _ROUNDING)
    return [number for number, score in scores.items() if score >= least]


def _kth(impacts: _Impacts, k: int) -> float:
    ordered = impacts.ordered()
    return impacts.by_number[ordered[k - 1]] if ordered is not None and len(ordered) >= k else 0.0


def _least(scores: Mapping[int, float], k: int) -> float:
    """Return the score of the last of the ``k`` best."""
    return nlargest(k, scores.values())[-1]


def _add(scores: dict[int, float], impacts: _Impacts, count: int, needed: float) -> None:
    """Add what a word adds: to documents that are known, and to new ones it adds enough to."""
    by_number = impacts.by_number
    if needed <= 0:
        if count > 1:
            by_number = {number: count * each for number, each in by_number.items()}
        if not scores:
            scores.update(by_number)
            return
        get = scores.get
        for number, each in by_number.items():
            scores[number] = get(number, 0.0) + each
        return
    new = _new(scores, impacts, count, needed)
    if len(scores) <= len(by_number):
        for number in scores:
            if number in by_number:
                scores[number] += count * by_number[number]
    else:
        for number, each in by_number.items():
            if number in scores:
                scores[number] += count * each
    scores.update(new)


def _new(scores: Mapping[int, float], impacts: _Impacts, count: int, needed: float) -> dict[int, float]:
    if impacts.top * count < needed:
        return {}
    by_number, ordered, new = impacts.by_number, impacts.ordered(), {}
    if ordered is None:
        for number, each in by_number.items():
            if count * each >= needed and number not in scores:
                new[number] = count * each
        return new
    for number in ordered:
        score = count * by_number[number]
        if score < needed:
            break
        if number not in scores:
            new[number] = score
    return new


class Bm25Retriever:
    """The retriever that needs nothing: BM25 over documents held in memory.

    Args:
        documents: The first ones.
        k1, b, words: As for `Bm25Index`.
    """

    __slots__ = ("index",)

    def __init__(
        self,
        *,
        documents: Iterable[Document] = (),
        k1: float = 1.2,
        b: float = 0.75,
        words: WordRule | None = None,
    ) -> None:
        self.index = Bm25Index(k1=k1, b=b, words=words)
        for document in documents:
            self.index.add(document)

    @property
    def name(self) -> str:
        index = self.index
        options = [f"k1={index.k1:g}", f"b={index.b:g}"]
        options += ["unicode"] if index.words.unicode else []
        options += [index.words.stemmer] if index.words.stemmer else []
        return f"bm25({','.join(options)})"

    def add(self, document: Document) -> None:
        """Add or replace a document; the next query finds it."""
        self.index.add(document)

    def remove(self, id: str) -> bool:
        """Remove a document; False if there is none of that id."""
        return self.index.remove(id)

    def search(self, query: str, k: int) -> list[Passage]:
        """Return the ``k`` best documents for a query, best first; ties by id."""
        return self.index.search(query, k)

    async def retrieve(self, query: str, *, limit: int) -> Sequence[Passage]:
        """The same as `search`."""
        return self.index.search(query, limit)
