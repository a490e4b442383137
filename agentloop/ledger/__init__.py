"""The record of a run: entries in one hash chain, written by a `Recorder`, read by a `RunLedger`."""

from __future__ import annotations

from agentloop.ledger.chain import NO_ENTRIES, Chain, chain_hash, follow
from agentloop.ledger.jsonlines import JsonLinesLedgerStore
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.ledger.reader import Entry, LedgerReport, RunLedger, find_run
from agentloop.ledger.recorder import LEDGER_VERSION, Recorder
from agentloop.ledger.summaries import summarize

__all__ = (
    "LEDGER_VERSION",
    "NO_ENTRIES",
    "Chain",
    "Entry",
    "JsonLinesLedgerStore",
    "LedgerReport",
    "MemoryLedgerStore",
    "Recorder",
    "RunLedger",
    "chain_hash",
    "find_run",
    "follow",
    "summarize",
)
