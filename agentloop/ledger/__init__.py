"""The record of a run: entries in one hash chain, written by a `Recorder`, read by a `RunLedger`."""

from __future__ import annotations

from agentloop._lazy import on_first_use

#: Where each public name lives; `__init__.pyi` says the same to type checkers.
_HOMES = {
    "agentloop.ledger.chain": (
        "Chain",
        "NO_ENTRIES",
        "chain_hash",
        "follow",
    ),
    "agentloop.ledger.jsonlines": ("JsonLinesLedgerStore",),
    "agentloop.ledger.memory": ("MemoryLedgerStore",),
    "agentloop.ledger.reader": (
        "Entry",
        "LedgerReport",
        "RunLedger",
        "find_run",
    ),
    "agentloop.ledger.recorder": (
        "LEDGER_VERSION",
        "Recorder",
    ),
    "agentloop.ledger.summaries": ("summarize",),
}

__all__, __getattr__, __dir__ = on_first_use(__name__, _HOMES)
