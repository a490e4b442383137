"""The record of a run: entries in one hash chain, written by a `Recorder`, read by a `RunLedger`."""

from __future__ import annotations

from agentloop.ledger.chain import NO_ENTRIES, Chain, chain_hash, follow
from agentloop.ledger.memory import MemoryLedgerStore
from agentloop.ledger.recorder import Recorder

__all__ = (
    "NO_ENTRIES",
    "Chain",
    "MemoryLedgerStore",
    "Recorder",
    "chain_hash",
    "follow",
)
