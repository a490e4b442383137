"""What is on disk: log, projection, snapshots, and the transactions that join them."""

from __future__ import annotations

from graphstate.store.feed import Subscription
from graphstate.store.opening import MEMORY, LockMode
from graphstate.store.store import Store
from graphstate.store.unit import Unit

__all__ = ("MEMORY", "LockMode", "Store", "Subscription", "Unit")
