"""The small sentence model: it loads without a network, means something, and is refused beside another."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.embed import SentenceEmbedder, sentence, sentence_embedder
from graphstate import Adaptogen, ErrorCode, Fail, HashingEmbedder, VerbFailed
from graphstate.activation.embedding import embed
from graphstate.similarity import cosine
from graphstate.verbs.embedders import find_embedder
from tests.corpora.read import naughty_strings

ROOT = Path(__file__).parents[2]

for needed in ("numpy", "safetensors", "tokenizers", "wordllama"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def model() -> SentenceEmbedder:
    return sentence_embedder()


@pytest.fixture
def graph(tmp_path: Path, model: SentenceEmbedder) -> Iterator[Adaptogen]:
    with Adaptogen.open(tmp_path / "graph.db", seed=False, embedder=model) as opened:
        yield opened


_OFFLINE = """
import socket, sys

def never(*_, **__):
    raise AssertionError("the network was asked")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = never
from graphstate.verbs.embedders import find_embedder

print(len(find_embedder("sentence").embed(["a small boat"])[0]), "wordllama" in sys.modules)
"""


def test_it_loads_from_its_package_alone_and_asks_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OFFLINE], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["256", "False"], "")
    assert list(tmp_path.iterdir()) == [], "nothing is downloaded or kept at home"


def test_what_means_alike_is_nearer_than_what_does_not(model: SentenceEmbedder) -> None:
    kitten, cat, money = embed(
        model, ["a kitten sleeps on the sofa", "the cat is napping on a couch", "interest rates rose again"]
    )
    assert cosine(kitten, cat) > 0.4 > 0.2 > abs(cosine(kitten, money))
    hashed = embed(HashingEmbedder(), ["kitten sofa", "cat couch"])
    assert cosine(*hashed) == 0, "words alone do not tell"


def test_a_vector_has_length_one_or_is_zero_and_depends_on_its_text_alone(model: SentenceEmbedder) -> None:
    texts = ["", "tea", *naughty_strings()[::10]]
    together = embed(model, texts)
    for text, vector in zip(texts, together, strict=True):
        assert math.hypot(*vector) == pytest.approx(1) or not any(vector)
        assert embed(model, [text]) == [vector]
    assert not any(together[0])
    assert str(model.descriptor()) == "sentence:wordllama-l2-supercat:1/256"


def test_a_graph_finds_by_meaning_what_shares_no_word(graph: Adaptogen) -> None:
    graph.remember("cat", payload={"text": "the cat is napping on a couch"}).unwrap()
    graph.remember("rates", payload={"text": "interest rates rose again"}).unwrap()
    best, *_ = graph.pulse("kitten asleep").hits
    assert best.id == "cat"
    assert best.signals["lexical"] == 0
    assert best.signals["semantic"] > 0.3
    assert [node.id for node in graph.recall(like="bank loans", limit=1)] == ["rates"]


def test_the_model_of_a_graph_is_kept_and_another_one_refused_until_all_is_made_again(
    graph: Adaptogen, tmp_path: Path
) -> None:
    graph.remember("cat", payload={"text": "the cat is napping"}).unwrap()
    with Adaptogen.open(tmp_path / "graph.db", seed=False, embedder="stored") as again:
        assert isinstance(again.embedder, SentenceEmbedder)
        assert again.recall(like="kitten")[0].id == "cat"
    with Adaptogen.open(tmp_path / "graph.db", seed=False, embedder="hashing") as other:
        refused = other.remember("dog", label="a dog")
        assert isinstance(refused, Fail)
        assert refused.code is ErrorCode.EMBEDDING_MISMATCH
        assert other.reembed().unwrap().embedded == 1
    wrong = graph.remember("dog", embedding=[1.0] * 256)
    assert isinstance(wrong, Fail)
    assert wrong.code is ErrorCode.EMBEDDING_MISMATCH


@pytest.mark.parametrize("missing", ["wordllama", "safetensors.numpy", "tokenizers", "numpy"])
def test_without_its_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "wordllama":
        monkeypatch.setattr(sentence, "find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(VerbFailed, match="comes with the extra 'embed'") as raised:
        find_embedder("sentence")
    assert raised.value.code is ErrorCode.INVALID_INPUT
    assert "loopwright[embed]" in raised.value.hint
