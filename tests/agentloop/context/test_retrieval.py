"""BM25 by its vectors, words of other scripts and stems, changes to the collection, fusion."""

from __future__ import annotations

import builtins
import random
from typing import Any

import pytest

from agentloop.context import words
from agentloop.context.bm25 import Bm25Index, Bm25Retriever, Document
from agentloop.context.retrieval import FixedRetriever, FusedRetriever, Passage, fuse
from agentloop.context.words import STOPWORDS, WordRule
from agentloop.errors import AgentLoopConfigError, MissingExtra

TEA = (
    Document("k1", "kettle boils water for morning tea"),
    Document("k2", "green tea steeps below boiling water"),
    Document("k3", "copper kettle, copper handle"),
    Document("k4", "bicycle chain needs oil"),
)


def scores(query: str, *documents: Document, k: int = 10, **options: Any) -> list[tuple[str, float]]:
    retriever = Bm25Retriever(documents=documents or TEA, **options)
    return [(found.id, round(found.score, 12)) for found in retriever.search(query, k)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("copper kettle", [("k3", 2.473406166999), ("k1", 0.678537521017)]),
        ("tea water", [("k1", 1.357075042033), ("k2", 1.251557328182)]),
        ("kettle kettle", [("k3", 1.482023127745), ("k1", 1.357075042033)]),
        ("oil", [("k4", 1.287111591325)]),
        ("kettles", []),
    ],
)
def test_v144_scores(query: str, expected: list[tuple[str, float]]) -> None:
    assert scores(query) == expected


def test_v145_other_parameters() -> None:
    assert scores("copper kettle", k1=2, b=0) == [("k3", 2.499106387049), ("k1", 0.693147180560)]


def test_v146_ties_by_id() -> None:
    twins = [Document("z9", "same words here"), Document("a1", "same words here")]
    assert scores("words", *twins) == [("a1", 0.182321556794), ("z9", 0.182321556794)]
    assert scores("words", *twins, k=1) == [("a1", 0.182321556794)]


def test_v147_one_document_of_one_word() -> None:
    assert scores("kettle", Document("d", "kettle")) == [("d", 0.287682072452)]


def test_v148_nothing_to_look_for_or_in() -> None:
    assert scores("what is the") == []
    assert Bm25Index().search("kettle", 5) == []
    assert scores("kettle", k=0) == []
    assert scores("kettle", Document("empty", "")) == []


def test_v149_words() -> None:
    assert WordRule()("Zip-Code 7 x9 of THE naïve_word É") == ["zip", "code", "x9", "na", "ve_word"]
    assert len(STOPWORDS) == 30


def test_metadata_passes_through() -> None:
    (found,) = Bm25Retriever(documents=[Document("d", "kettle", {"page": 3})]).search("kettle", 1)
    assert found == Passage(id="d", text="kettle", score=found.score, metadata={"page": 3})


def test_w36_words_of_every_script() -> None:
    rule = WordRule(unicode=True)
    assert rule("naïve STRASSE straße ﬁne É x") == ["naïve", "strasse", "strasse", "fine"]
    assert rule("東京都で a会議") == ["東京", "京都", "都で", "会議"]
    assert rule("水") == ["水"]
    assert scores("naive água", Document("d", "ÁGUA fria"), words=rule)[0][0] == "d"


def test_s3_plurals_are_found_by_their_stem() -> None:
    rule = WordRule(stemmer="english")
    assert {name for name, _ in scores("kettles boiled", words=rule)} == {"k1", "k2", "k3"}
    assert Bm25Retriever(words=rule).name == "bm25(k1=1.2,b=0.75,english)"
    with pytest.raises(AgentLoopConfigError, match="english"):
        WordRule(stemmer="klingon")


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "snowballstemmer":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    words._stem_of.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"loopwright\[stem\]"):
        WordRule(stemmer="english")


def test_d2_what_is_added_is_found_at_once_and_what_is_removed_is_not() -> None:
    index = Bm25Index()
    for document in TEA:
        index.add(document)
    index.search("copper", 3)
    index.add(Document("k5", "copper copper copper"))
    assert [found.id for found in index.search("copper", 3)] == ["k5", "k3"]
    index.add(Document("k5", "nothing of the kind"))
    assert [found.id for found in index.search("copper", 3)] == ["k3"]
    assert index.remove("k3")
    assert not index.remove("k3")
    assert index.search("copper", 3) == []
    assert (len(index), "k5" in index, "k3" in index) == (4, True, False)


def test_a_changed_index_equals_one_made_anew() -> None:
    rng = random.Random(7)
    vocabulary = [f"w{number}" for number in range(40)]
    texts = {f"d{number}": " ".join(rng.choices(vocabulary, k=rng.randint(0, 12))) for number in range(120)}
    index = Bm25Index()
    for name, text in texts.items():
        index.add(Document(name, text))
    for name in rng.sample(sorted(texts), 50):
        if rng.random() < 0.5:
            index.remove(name)
            del texts[name]
        else:
            texts[name] = " ".join(rng.choices(vocabulary, k=5))
            index.add(Document(name, texts[name]))
    anew = Bm25Index()
    for name in sorted(texts):
        anew.add(Document(name, texts[name]))
    for _ in range(6):  # words asked for often are walked in another order
        for query in ("w1 w2 w3", "w5", "w7 w7 w9 w11", " ".join(vocabulary)):
            assert index.search(query, 10) == anew.search(query, 10)


def plainly(documents: dict[str, str], query: str, k: int) -> list[str]:
    """Score every document and sort: what the index has to agree with."""
    index = Bm25Index()
    for name, text in documents.items():
        index.add(Document(name, text))
    return [found.id for found in index.search(query, len(documents))][:k]


def test_ranked_before_it_is_cut() -> None:
    rng = random.Random(11)
    weights = [1 / (rank + 1) for rank in range(60)]
    vocabulary = [f"w{number}" for number in range(60)]
    texts = {f"d{n}": " ".join(rng.choices(vocabulary, weights, k=rng.randint(3, 30))) for n in range(300)}
    index = Bm25Index()
    for name, text in texts.items():
        index.add(Document(name, text))
    for _ in range(5):
        for query in (" ".join(rng.choices(vocabulary, weights, k=4)) for _ in range(20)):
            assert [found.id for found in index.search(query, 7)] == plainly(texts, query, 7)


# ------------------------------------------------------------------------------------ port


def passages(*names: str) -> list[Passage]:
    return [Passage(id=name, text=name.upper()) for name in names]


def test_fusion_is_by_reciprocal_rank_and_ties_by_id() -> None:
    fused = fuse([passages("b", "a", "c"), passages("c", "a", "b")], limit=3)
    assert [found.id for found in fused] == ["b", "c", "a"]
    assert fused[0].score == 1 / 61 + 1 / 63
    assert fused[2].score == 2 / 62


@pytest.mark.anyio
async def test_retrievers_answer_alike() -> None:
    bm25 = Bm25Retriever(documents=TEA)
    assert await bm25.retrieve("oil", limit=3) == bm25.search("oil", 3)
    fixed = FixedRetriever(passages("x", "y", "z"))
    assert [found.id for found in await fixed.retrieve("any", limit=2)] == ["x", "y"]
    both = FusedRetriever([bm25, fixed])
    assert both.name == "fused(bm25(k1=1.2,b=0.75), fixed)"
    assert [found.id for found in await both.retrieve("oil", limit=2)] == ["k4", "x"]
