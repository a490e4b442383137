"""The tables of the memory, each in one row: created, dumped, loaded, cleared and taken in from it.

`FOLDED` is made from the stream ``graph`` and is part of its state: of snapshots, of the digest
that compares two projections, of what a compacted bundle begins with. `BESIDE` is not: it may be
lost without a loss of truth. The statements that fill them stand where they are folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ("BESIDE", "CLEAR", "CREATE", "DUMP", "FOLDED", "LOAD", "TABLES", "Table")


class Table(NamedTuple):
    """One table of the state, or beside it."""

    name: str
    #: names and types, as SQLite is told
    columns: str
    #: how many of the first columns are the key
    key: int = 1
    indexes: tuple[str, ...] = ()
    #: whose number the first column is, node or edge; empty if it is none
    about: str = "node"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.split()[0] for column in self.columns.split(", "))

    @property
    def blobs(self) -> frozenset[str]:
        """The columns that hold bytes; in a state these are hexadecimal, and empty for none."""
        return frozenset(column.split()[0] for column in self.columns.split(", ") if " BLOB" in column)


#: What is known of where a node comes from; nodes of which nothing is known have no row.
_PROVENANCE = Table(
    "provenance",
    "no INTEGER PRIMARY KEY, memory_class TEXT, confidence REAL, source TEXT, observed_at INTEGER, "
    "derived_from TEXT NOT NULL, supersedes TEXT, contradicts TEXT NOT NULL",
)

# `lane` says which other rows one is ranked with: the class of the node, plus 8 if it is superseded;
# null if it was set aside. Within a lane `rank_key` orders at every moment alike.
_ACTIVATION = Table(
    "activation",
    "no INTEGER PRIMARY KEY, id TEXT NOT NULL, lane INTEGER, rank_key REAL, score REAL NOT NULL, "
    "importance REAL NOT NULL, anchor INTEGER NOT NULL, inhibition REAL NOT NULL, inhibited_at INTEGER, "
    "reinforcement_count INTEGER NOT NULL, last_reinforced_at INTEGER, shown INTEGER NOT NULL, "
    "useful INTEGER NOT NULL, harmful INTEGER NOT NULL",
    indexes=("CREATE INDEX activation_rank ON activation (lane, rank_key DESC, id)",),
)
_LENS = Table(
    "lens",
    "no INTEGER NOT NULL, context TEXT NOT NULL, id TEXT NOT NULL, lane INTEGER, rank_key REAL, "
    "score REAL NOT NULL, anchor INTEGER NOT NULL, inhibition REAL NOT NULL, inhibited_at INTEGER",
    key=2,
    indexes=("CREATE INDEX lens_rank ON lens (context, lane, rank_key DESC, id) WHERE rank_key IS NOT NULL",),
)
#: When an edge ``superseded_by`` was made.
_SUCCESSION = Table(
    "succession",
    "no INTEGER PRIMARY KEY, at INTEGER NOT NULL",
    about="edge",
    # Asked for each memory that is changed or found, which may have very many other references.
    indexes=(
        "CREATE INDEX superseded ON edge (src, kind, label) WHERE kind = 'reference' AND label = 'superseded_by'",
        """CREATE INDEX consolidated ON edge (dst, kind, label)
        WHERE kind = 'reference' AND label = 'consolidated_from'""",
    ),
)

_OF_ACTIVATION = (_PROVENANCE, _ACTIVATION, _LENS, _SUCCESSION)
# What recollection learns: weights by scope, and what was said about what a search showed.
_OF_RECOLLECTION = (
    Table(
        "signal_weight", "scope TEXT NOT NULL, signal TEXT NOT NULL, weight REAL NOT NULL", key=2, about=""
    ),
    Table("verdict", "retrieval TEXT NOT NULL, node TEXT NOT NULL, useful INTEGER NOT NULL", key=2, about=""),
)
#: Vectors of nodes as little-endian 32-bit floats, null for one that is to be made again, and the
#: event that changed it last.
_VECTOR = Table(
    "vector",
    "no INTEGER PRIMARY KEY, seq INTEGER NOT NULL, data BLOB",
    indexes=(
        "CREATE INDEX vector_seq ON vector (seq)",
        "CREATE INDEX vector_waiting ON vector (no) WHERE data IS NULL",
    ),
)
_OF_EMBEDDING = (_VECTOR,)
#: Events that added something to a memory since replication began.
_DELTA = Table("delta", "id TEXT NOT NULL, at INTEGER NOT NULL", key=2, about="")
_OF_REPLICATION = (_DELTA,)

#: Part of the state, in the order in which a bundle brings them.
FOLDED = (*_OF_ACTIVATION, *_OF_RECOLLECTION, *_OF_EMBEDDING, *_OF_REPLICATION)

#: No part of the state: what was retrieved, what is still to be sent.
BESIDE = (
    Table(
        "retrieval",
        "no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, told TEXT NOT NULL",
        about="",
    ),
)

#: All of them.
TABLES = (*FOLDED, *BESIDE)

_SHOWN = {
    table.name: ", ".join(f"hex({name})" if name in table.blobs else name for name in table.names)
    for table in TABLES
}
_READ = {
    table.name: ", ".join(
        f"unhex(nullif(value ->> {place}, ''))" if name in table.blobs else f"value ->> {place}"
        for place, name in enumerate(table.names)
    )
    for table in TABLES
}
_KEYS = {table.name: ", ".join(table.names[: table.key]) for table in TABLES}

#: What creates all of them, with their indexes.
CREATE = tuple(
    statement
    for table in TABLES
    for statement in (
        f"CREATE TABLE {table.name} ({table.columns}) STRICT"
        if table.key == 1
        else f"CREATE TABLE {table.name} ({table.columns}, PRIMARY KEY ({_KEYS[table.name]})) STRICT, WITHOUT ROWID",
        *table.indexes,
    )
)

#: Empties those of the state.
CLEAR = tuple(f"DELETE FROM {table.name}" for table in FOLDED)

#: For each table of the state an expression: all its rows as JSON text, in the order of the key.
DUMP: Mapping[str, str] = {
    name: f"(SELECT json_group_array(json_array({_SHOWN[name]})) FROM (SELECT * FROM {name} ORDER BY {_KEYS[name]}))"
    for name in (table.name for table in FOLDED)
}

#: What fills them from a state.
LOAD = tuple(
    f"INSERT INTO {table.name} SELECT {_READ[table.name]} FROM json_each(?, '$.{table.name}')"
    for table in FOLDED
)
