"""Every naughty string and every lone surrogate through the verbs: kept as it is, or a typed refusal.

Also as search text, where no character has a meaning of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphstate._canonical import encode
from graphstate.adaptogen import Adaptogen
from graphstate.errors import ErrorCode, VerbFailed
from graphstate.rendering import visible
from graphstate.results import Fail, Result
from graphstate.store.words import words
from tests.corpora.read import naughty_strings, surrogates
from tests.graphstate.conftest import Make
from tests.tally import tally


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that becomes the name of a file shall make none here."""
    monkeypatch.chdir(tmp_path)


TEXTS = naughty_strings()
LONE = tuple(surrogates())
FULL = os.environ.get("RELIABILITY") == "full"


def ids(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((f"n{number}", text) for number, text in enumerate(texts))


def refused(result: Result[Any]) -> bool:
    """Say whether it is a refusal of the argument; anything else must be Ok."""
    if isinstance(result, Fail):
        assert result.code is ErrorCode.INVALID_INPUT, result
        encode(result.to_json())
        return True
    return False


def check_replay(graph: Adaptogen) -> None:
    report = graph.verify_integrity(deep=True)
    assert report.ok, report


def test_a_node_and_an_edge_keep_every_text(make: Make, tmp_path: Path) -> None:
    graph = make(path=tmp_path / "graph.db")
    kept: dict[str, dict[str, Any]] = {}
    for node_id, text in ids(TEXTS):
        payload = {"text": text, "at": {text: [text]}}
        node = graph.remember(node_id, label=text, payload=payload, cause=f"c-{node_id}").unwrap()
        assert (node.label, node.payload) == (text, payload)
        graph.remember(node_id, patch={"patched": text}).unwrap()
        edge = graph.link("n0", node_id, id=f"e-{node_id}", label=text).unwrap()
        assert edge.label == text
        kept[node_id] = payload | {"patched": text}
        fits = 0 < len(text.encode()) <= 128 and text.isprintable()
        assert refused(graph.remember(node_id, kind=text)) != fits, text
        assert refused(graph.remember(node_id, tags=[text])) != fits, text
    graph.set_cursor(["n0"]).unwrap()
    picture = graph.render()
    assert all(line.isprintable() for line in picture.split("\n"))
    assert all(entry.summary.isprintable() for entry in graph.history(limit=1_000))
    check_replay(graph)
    graph.close()
    with Adaptogen.open(tmp_path / "graph.db", seed=False, read_only=True) as again:
        assert again.render().splitlines()[0] == picture.splitlines()[0]
        for node_id, text in ids(TEXTS):
            found, edge_found = again.get_node(node_id), again.get_edge(f"e-{node_id}")
            assert found is not None
            assert edge_found is not None
            assert (found.label, found.payload, edge_found.label) == (text, kept[node_id], text)
    tally("naughty strings", len(TEXTS))


def test_text_for_people_is_one_line_without_anything_hidden() -> None:
    for text in (*TEXTS, *LONE):
        shown = visible(text)
        assert shown.isprintable()
        assert len(shown.splitlines()) <= 1
        shown.encode()


def places(graph: Adaptogen, text: str) -> Iterator[Callable[[], Result[Any]]]:
    """Yield a call for each place of a verb that takes text."""
    yield lambda: graph.remember(text)
    yield lambda: graph.remember("a", label=text)
    yield lambda: graph.remember("a", kind=text)
    yield lambda: graph.remember("a", tags=["x", text])
    yield lambda: graph.remember("a", payload=text)
    yield lambda: graph.remember("a", payload={"k": [text]})
    yield lambda: graph.remember("a", payload={text: 1})
    yield lambda: graph.remember("a", patch={text: 1})
    yield lambda: graph.remember("a", patch={"k": text})
    yield lambda: graph.remember("a", status=text)  # type: ignore[arg-type]
    yield lambda: graph.remember("a", actor=text)
    yield lambda: graph.remember("a", cause=text)
    yield lambda: graph.link("a", text)
    yield lambda: graph.link("a", "b", id=text)
    yield lambda: graph.link("a", "b", label=text)
    yield lambda: graph.link("a", "b", kind=text)  # type: ignore[arg-type]
    yield lambda: graph.depend(text, "a")
    yield lambda: graph.set_cursor([text])
    yield lambda: graph.transition(text)
    yield lambda: graph.transition("b", vars={"k": text})
    yield lambda: graph.step(vars={text: 1})
    yield lambda: graph.checkpoint(text)
    yield lambda: graph.rollback("start", reason=text)
    yield lambda: graph.set_tunable("explore", text)
    yield lambda: graph.set_tunable(text, 1)


def test_every_lone_surrogate_is_refused_everywhere_and_changes_nothing(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="ab").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.checkpoint("start").unwrap()
    before = graph.head()
    for text in LONE[:: len(LONE) // 64]:
        for number, call in enumerate(places(graph, text)):
            result = call()
            assert isinstance(result, Fail), (number, text)
            encode(result.to_json())
            assert graph.head() == before, (number, text)
    for text in LONE:
        assert refused(graph.remember("a", payload={"k": text}))
        assert refused(graph.remember("a", label=text))
    assert graph.head() == before
    check_replay(graph)
    tally("lone surrogates", len(LONE))


@pytest.mark.parametrize("word", ["id", "kind", "tag", "text"])
def test_every_lone_surrogate_is_refused_by_recall(make: Make, word: str) -> None:
    graph: Any = make("a")
    for text in LONE:
        with pytest.raises(VerbFailed) as caught:
            graph.recall(**{word: text})
        assert caught.value.code is ErrorCode.INVALID_INPUT
        str(caught.value).encode()
    tally("lone surrogates", len(LONE))


def answer(read: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Return what a read answers, or how it refuses."""
    try:
        return repr(read(*arguments, **named))
    except VerbFailed as error:
        if error.code not in (ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND):
            raise
        return str(error)


def test_reads_take_every_text(make: Make) -> None:
    graph = make("a")
    for text in (*TEXTS, *LONE):
        assert graph.get_node(text) is None
        assert graph.get_edge(text) is None
        assert graph.get_stat("node", text) is None
        said = [
            answer(graph.history, node=text),
            answer(graph.history, type=text),
            answer(graph.ready, [text]),
            answer(graph.reachable, text),
            answer(graph.ancestors, text),
            answer(graph.legal_moves, actor=text),
            answer(graph.render, actor=text),
        ]
        assert all(text.encode() for text in said)
    tally("naughty strings", len(TEXTS))


# ------------------------------------------------------------------------------------- search


@pytest.mark.parametrize("fts", [True, False])
def test_every_text_is_searched_as_it_is_and_finds_its_own_node(make: Make, fts: bool) -> None:
    graph = make(fts=fts)
    assert graph.fts_enabled() is fts
    for node_id, text in ids(TEXTS):
        graph.remember(node_id, label="other", payload={"text": text}).unwrap()
    for node_id, text in list(ids(TEXTS))[:: 1 if fts or FULL else 5]:  # reading the nodes takes its time
        if len(text.encode()) > 1_024:
            with pytest.raises(VerbFailed, match="InvalidInput"):
                graph.recall(text=text)
            continue
        found = {node.id for node in graph.recall(text=text, limit=1_000)}
        assert (node_id in found) == bool(words(text)), text
        assert bool(found) == bool(words(text)), text
        tally("searches")


@pytest.mark.parametrize("fts", [True, False])
def test_every_text_is_data_to_the_memory_and_finds_its_own_node(make: Make, fts: bool) -> None:
    graph = make(fts=fts, embedder="hashing")
    with graph.unit():
        for node_id, text in ids(TEXTS):
            graph.remember(node_id, label="other", payload={"text": text}).unwrap()
    head = graph.head()
    for node_id, text in list(ids(TEXTS))[:: 5 if fts or FULL else 40]:
        if len(text.encode()) > 1_024:
            continue
        found = {hit.id: hit.signals for hit in graph.pulse(text, depth=0, seeds=1_000, limit=1_000).hits}
        assert (node_id in found) == bool(words(text)), text
        assert not words(text) or found[node_id]["lexical"] > 0, text
        known = graph.recognise({"text": text})
        assert (known.by == "content") == bool(words(text)), text
        tally("searches", 2)
    assert graph.head() == head
    for text in LONE[:: len(LONE) // 8]:
        for call in (graph.pulse, graph.recognise):
            with pytest.raises(VerbFailed, match="InvalidInput"):
                call(text)
        assert refused(graph.absorb(text))
        assert refused(graph.reinforce("n0", 0.1, reason=text))
        assert refused(graph.suppress("n0", 0.1, context=text))
        assert refused(graph.remember("n0", memory={"source": text}))
        assert refused(graph.consolidate("n0", ["n1"], label=text))
    assert graph.head() == head


def test_a_word_finds_the_same_nodes_with_and_without_the_index(make: Make) -> None:
    graphs = [make(fts=True), make(fts=False)]
    for graph in graphs:
        for node_id, text in ids(TEXTS):
            graph.remember(node_id, label=text[:1_024], payload={"text": text}).unwrap()
    all_words = sorted(
        {word for text in TEXTS for word in words(text) if len(word) <= 1_024} | {"it", "none"}
    )
    for word in all_words[:: 1 if FULL else 7]:
        with_index, without = ({node.id for node in graph.recall(text=word, limit=1_000)} for graph in graphs)
        assert with_index == without, ascii(word)
    assert len(all_words) > 700
