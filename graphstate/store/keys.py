"""The key of a keyed chain: how a file says that it has one, and whether this is it.

A file is keyed from its making or never. It states the fact and a value that only the key can
make from a fixed text; the key itself is neither stored nor shown.
"""

from __future__ import annotations

import hmac

from graphstate.errors import WrongKey
from graphstate.events import ChainKey
from graphstate.store import schema
from graphstate.store.db import Database

__all__ = ("check", "mark")

_KIND = "hmac-sha256"


def _statement(key: ChainKey) -> str:
    return f"{_KIND} {hmac.digest(key, b'this file is keyed', 'sha256').hex()}"


def mark(db: Database, key: ChainKey) -> None:
    """Let a new file state that its chain is keyed."""
    schema.state_chain(db, _statement(key))


def check(db: Database, path: str, key: ChainKey | None) -> None:
    """Compare a key with what the file states.

    Raises:
        WrongKey: It is another one, or missing, or the file is not keyed.
    """
    stated = schema.stated_chain(db)
    if stated is None:
        if key is not None:
            raise WrongKey(f"{path} is not keyed: only a new file can be, so begin one with this key")
    elif key is None:
        raise WrongKey(f"{path} is keyed: open it with the key it was made with")
    elif not hmac.compare_digest(stated, _statement(key)):
        raise WrongKey(f"{path} is keyed with another key")
