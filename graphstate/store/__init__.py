"""What is on disk: log, projection, snapshots, and the transactions that join them."""

from __future__ import annotations

from graphstate.store.store import LockMode, Store, Unit

__all__ = ("LockMode", "Store", "Unit")
