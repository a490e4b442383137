"""What joins a run to a graph: its ledger kept in the graph's file."""

from __future__ import annotations

from adapters.graph.ledgers import GraphLedgerStore

__all__ = ("GraphLedgerStore",)
