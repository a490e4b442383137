"""Every naughty string and every lone surrogate through frames, ledgers, facts, verdicts, redaction.

What comes from a model or a tool is repaired to U+FFFD; what a program hands over is kept as it
is or refused with a typed error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.graph.ledgers import GraphLedgerStore
from agentloop import Frame
from agentloop._canonical import Json, NotJson, decode, encode, encode_text, repair_text
from agentloop.determinism import ManualClock
from agentloop.errors import AgentLoopError
from agentloop.ledger import JsonLinesLedgerStore, MemoryLedgerStore, Recorder, RunLedger
from agentloop.redact import Redactor
from agentloop.symbolic import SymbolicState
from agentloop.verdict import create_default_evaluator_parser
from tests.corpora.read import naughty_strings, surrogates
from tests.tally import tally

TEXTS = naughty_strings()
LONE = tuple(surrogates())


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    yield
    tally("naughty strings", len(TEXTS))
    tally("lone surrogates", len(LONE))


def test_a_frame_carries_every_text_to_the_wire_and_back() -> None:
    for text in (*TEXTS, *LONE):
        content = {"text": text, "data": {text: [text]}}
        frame = Frame.of({"type": "TEXT", "content": content})
        repaired = repair_text(text)
        assert frame.text == Frame.of(text).text == repaired
        for written in (frame.to_dict(), frame.to_wire(), Frame("TEXT", content).to_dict()):
            read = Frame.from_dict(decode(encode(written)))
            assert read.content == {"text": repaired, "data": {repaired: [repaired]}}


def memory(folder: Path) -> MemoryLedgerStore:
    return MemoryLedgerStore()


def json_lines(folder: Path) -> JsonLinesLedgerStore:
    return JsonLinesLedgerStore(folder / "runs")


def graph(folder: Path) -> GraphLedgerStore:
    return GraphLedgerStore(folder / "state.db")


@pytest.mark.parametrize("make", [memory, json_lines, graph], ids=lambda make: make.__name__)
def test_a_ledger_keeps_every_text_and_refuses_every_lone_surrogate(
    make: Callable[[Path], MemoryLedgerStore | JsonLinesLedgerStore | GraphLedgerStore], tmp_path: Path
) -> None:
    kept: list[Json] = [{"version": 2}, *({"text": text, "at": {text: [text]}} for text in TEXTS)]
    store = make(tmp_path)
    recorder = Recorder(store, "r", ManualClock(1))
    for number, data in enumerate(kept):
        recorder.record("step" if number else "run.opened", data)
    for text in LONE:
        for refused in ({"text": text}, {text: 1}):
            with pytest.raises(NotJson, match="lone surrogate"):
                recorder.record("step", refused)
    recorder.flush(sync=True)
    assert [entry.data for entry in RunLedger(store, "r").entries()] == kept
    assert RunLedger(store, "r").verify().ok
    if not isinstance(store, MemoryLedgerStore):
        store.close()
        with make(tmp_path) as again:  # type: ignore[union-attr]
            assert [entry.data for entry in RunLedger(again, "r").entries()] == kept


def test_a_fact_is_kept_as_it_is_or_refused() -> None:
    state = SymbolicState()
    for text in TEXTS:
        values: list[Json] = [text, [text], {text: {"k": text}}]
        for value in values:
            state.assert_value("fact", value)
            assert state.get_value("fact") == value
        try:
            state.assert_value(text, 1)
        except (ValueError, AgentLoopError):
            assert not text or not text.isprintable(), (
                "only hidden characters and nothing are refused as a name"
            )
            assert text not in state.get_all()
        else:
            assert state.get_value(text) == 1
    before = encode(state.get_all())
    for text in LONE:
        hidden: list[tuple[str, Json]] = [("fact", text), ("fact", [text]), ("fact", {text: 1}), (text, 1)]
        for name, value in hidden:
            with pytest.raises(ValueError):
                state.assert_value(name, value)
    assert encode(state.get_all()) == before


def test_a_verdict_quotes_every_text_as_evidence_and_none_decides() -> None:
    parse = create_default_evaluator_parser(lenient_status=True)
    for text in (*TEXTS, *LONE):
        whole = parse([text])
        assert whole.status == "FAILURE"
        assert whole.parse_error in ("empty", "no_json", "missing_status")
        assert parse([text, text]).status == "FAILURE"
        said = encode_text({"status": "RUNNING", "evidence": text})
        result = parse([said])
        assert (result.status, result.evidence) == ("RUNNING", repair_text(text))
        escaped = parse([f'{{"status":"RUNNING","evidence":"{ascii_json(text)}"}}'])
        assert (escaped.status, escaped.evidence) == ("RUNNING", repair_text(text))
        for each in (whole, result, escaped):
            each.evidence.encode()


def ascii_json(text: str) -> str:
    """The inside of a JSON string with every character as an escape."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def test_a_redactor_leaves_every_text_that_has_no_secret_and_finds_those_that_are() -> None:
    redactor = Redactor(["canary-secret-0123"], patterns=False)
    for text in (*TEXTS, *LONE):
        assert redactor.redact_text(text) is text
        value = {text: [text]}
        assert redactor.redact_value(value) is value
        secret = f"{text}canary-secret-0123{text}"
        assert "canary-secret" not in redactor.redact_text(secret)
        stream = redactor.stream()
        assert stream.feed(text) + stream.feed(text) + stream.flush() == text + text
        if len(text) >= 8:
            own = Redactor([text], patterns=False)
            assert text not in own.redact_text(f"before {text} after")


@pytest.mark.parametrize("size", [1, 3])
def test_a_redactor_with_patterns_says_the_same_whole_and_in_chunks(size: int) -> None:
    redactor = Redactor(patterns=True)
    for text in (*TEXTS, *LONE):
        whole = redactor.redact_text(text)
        stream = redactor.stream()
        parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(parts) + stream.flush() == whole
