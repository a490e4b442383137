"""The tables of a graphstate file, and the check that a file has exactly these.

Truth is `event` (with the names it uses in `stream` and `term`). `node`, `node_tag`, `edge`,
`experience`, `tunable` and `state` are folded from the stream ``graph`` and can be made again.
`experience` holds the statistics of nodes (key 2 * node.no) and edges (2 * edge.no + 1), the view
`stat` shows them with their ids.
`state` holds the small things that nearly every event changes, together on one page: the last
event folded (``head``), where each actor stands and came from (``cursor/...``, ``trail/...``), the
last ``rewards``, what came from another graph (``origin/...``), and which model the vectors are of
(``embedder``). The view `cursor` shows the former. What is remembered of the worth of nodes, and their
vectors, stands in the tables of `tables.py`. `snapshot`, `checkpoint`, `first_result`, `event_abandoned`, `cut` and
`meta` stand beside them. A stream whose oldest rows were removed begins after ``start_seq``, as the event ``start_record``
says. The view `event_log` is for people: names and hex instead of numbers
and bytes. `node_text` is the full-text index; it may lag behind and catches up from the log.
"""

from __future__ import annotations

from graphstate.errors import ForeignDatabase, IntegrityBroken, UnsupportedVersion
from graphstate.events import GENESIS, GRAPH
from graphstate.store.db import Database
from graphstate.store.tables import CREATE

__all__ = (
    "APPLICATION_ID",
    "FORMAT_VERSION",
    "GRAPH_NO",
    "SHIFT",
    "create",
    "has_full_text",
    "inspect",
    "state_chain",
    "stated_chain",
    "structure_problem",
)

#: "Gst8" in ASCII; SQLite tools and `file` show it.
APPLICATION_ID = 0x47737438
FORMAT_VERSION = 3

#: The graph's own stream always has this number.
GRAPH_NO = 1

#: A row's key is the number of its stream, shifted by this, plus its seq.
SHIFT = 40

# Streams, types, actors and trust levels repeat in every row, so rows hold their numbers: a row
# of a run costs about 60 bytes plus its body. (stream, seq) is one number, stream * 2^40 + seq:
# as the row's own key it needs no index, appends go to the end of the table's last page, and
# long bodies stay in it (a table keyed by two columns moves what exceeds 1,000 bytes elsewhere).
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE term (no INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT",
    """CREATE TABLE stream (
    no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    verified_seq INTEGER NOT NULL, verified_hash BLOB NOT NULL,
    start_seq INTEGER NOT NULL, start_hash BLOB NOT NULL, start_record INTEGER NOT NULL) STRICT""",
    """CREATE TABLE event (
    no INTEGER PRIMARY KEY, at INTEGER NOT NULL, id TEXT, type INTEGER NOT NULL,
    actor INTEGER, trust INTEGER, cause TEXT, body TEXT NOT NULL, hash BLOB NOT NULL) STRICT""",
    """CREATE TABLE event_abandoned (
    cut INTEGER NOT NULL, no INTEGER NOT NULL, at INTEGER NOT NULL, id TEXT, type INTEGER NOT NULL,
    actor INTEGER, trust INTEGER, cause TEXT, body TEXT NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (cut, no)) STRICT""",
    """CREATE TABLE cut (
    no INTEGER PRIMARY KEY, stream INTEGER NOT NULL, at INTEGER NOT NULL, actor TEXT, trust TEXT,
    reason TEXT NOT NULL, from_seq INTEGER NOT NULL, from_hash BLOB NOT NULL,
    to_seq INTEGER NOT NULL, to_hash BLOB NOT NULL) STRICT""",
    """CREATE TABLE first_result (
    stream INTEGER NOT NULL, cause TEXT NOT NULL, verb TEXT NOT NULL, seq INTEGER NOT NULL,
    result TEXT NOT NULL, PRIMARY KEY (stream, cause)) STRICT, WITHOUT ROWID""",
    "CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE node (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, label TEXT NOT NULL,
    payload TEXT NOT NULL, tags TEXT NOT NULL, status TEXT NOT NULL, version INTEGER NOT NULL,
    created_seq INTEGER NOT NULL, updated_seq INTEGER NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, trust TEXT NOT NULL) STRICT""",
    "CREATE INDEX node_kind ON node (kind, id)",
    "CREATE TABLE node_tag (tag TEXT NOT NULL, node INTEGER NOT NULL, PRIMARY KEY (tag, node)) STRICT, WITHOUT ROWID",
    """CREATE TABLE edge (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, src TEXT NOT NULL, dst TEXT NOT NULL,
    kind TEXT NOT NULL, label TEXT NOT NULL, guard TEXT, enforcement TEXT, weight REAL NOT NULL,
    learned_weight REAL NOT NULL, version INTEGER NOT NULL, created_seq INTEGER NOT NULL,
    updated_seq INTEGER NOT NULL, learned_enforcement TEXT) STRICT""",
    "CREATE INDEX edge_out ON edge (src, kind)",
    "CREATE INDEX edge_in ON edge (dst, kind)",
    """CREATE TABLE experience (
    no INTEGER PRIMARY KEY, visits INTEGER NOT NULL, successes INTEGER NOT NULL,
    failures INTEGER NOT NULL, soft_violations INTEGER NOT NULL, blocks INTEGER NOT NULL,
    ema_reward REAL NOT NULL, last_seq INTEGER NOT NULL, rewarded_by TEXT,
    rewarded_move INTEGER NOT NULL) STRICT""",
    """CREATE VIEW stat AS SELECT 'node' AS kind, n.id, x.* FROM experience x JOIN node n ON x.no = 2 * n.no
    UNION ALL SELECT 'edge', e.id, x.* FROM experience x JOIN edge e ON x.no = 2 * e.no + 1""",
    """CREATE TABLE zone (
    no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, intra TEXT NOT NULL, boundary TEXT NOT NULL,
    learned_intra TEXT, learned_boundary TEXT, version INTEGER NOT NULL, created_seq INTEGER NOT NULL,
    updated_seq INTEGER NOT NULL) STRICT""",
    """CREATE TABLE zone_member (
    zone TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (zone, node)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX zone_member_node ON zone_member (node, zone)",
    """CREATE TABLE rule (
    scope TEXT NOT NULL, id TEXT NOT NULL, violations INTEGER NOT NULL, clean INTEGER NOT NULL,
    PRIMARY KEY (scope, id)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE policy_lock (
    scope TEXT NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL, actor TEXT, at INTEGER NOT NULL,
    seq INTEGER NOT NULL, PRIMARY KEY (scope, id)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE blocked (
    edge TEXT PRIMARY KEY, edge_seq INTEGER NOT NULL, minute INTEGER NOT NULL, recorded INTEGER NOT NULL,
    pending INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE TABLE tunable (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE snapshot (
    id TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, at INTEGER NOT NULL,
    digest BLOB NOT NULL, data BLOB NOT NULL) STRICT""",
    """CREATE TABLE checkpoint (
    name TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL,
    snapshot TEXT NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE VIEW cursor AS SELECT substr(key, 8) AS actor, value ->> '$.nodes' AS nodes,
    value ->> '$.moves' AS moves FROM state WHERE key GLOB 'cursor/*'""",
    """CREATE VIEW event_log AS SELECT
    s.name AS stream, e.no & 0xFFFFFFFFFF AS seq, e.at, e.id, t.text AS type, a.text AS actor, r.text AS trust,
    e.cause, e.body, lower(hex(e.hash)) AS hash
    FROM event e JOIN stream s ON s.no = e.no >> 40 JOIN term t ON t.no = e.type
    LEFT JOIN term a ON a.no = e.actor LEFT JOIN term r ON r.no = e.trust""",
    *CREATE,
)

_FULL_TEXT = "CREATE VIRTUAL TABLE node_text USING fts5(text, content='', contentless_delete=1)"

_MARK_APPLICATION = f"PRAGMA application_id={APPLICATION_ID}"
_MARK_VERSION = f"PRAGMA user_version={FORMAT_VERSION}"

_SCHEMA = (
    "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'node\\_text\\_%' ESCAPE '\\'"
)


def create(db: Database, *, full_text: bool) -> None:
    """Lay the tables into an empty database. The caller holds a writing transaction."""
    for statement in _TABLES:
        db.run(statement)
    if full_text:
        db.run(_FULL_TEXT)
    db.run(
        "INSERT INTO stream VALUES (?1, ?2, 0, ?3, 0, ?3, 0)",
        (GRAPH_NO, GRAPH, GENESIS),
    )
    db.run(_MARK_APPLICATION)
    db.run(_MARK_VERSION)


def inspect(db: Database, path: str) -> bool:
    """Say whether the file already is ours; False for an empty one.

    Raises:
        ForeignDatabase: It holds somebody else's tables.
        UnsupportedVersion: It is ours, of another version.
        IntegrityBroken: It is ours, but something was added to or taken from its schema.
    """
    (application,) = db.one("PRAGMA application_id") or (0,)
    (version,) = db.one("PRAGMA user_version") or (0,)
    present = {sql for (sql,) in db.all(_SCHEMA)}
    if application != APPLICATION_ID:
        if application or version or present:
            raise ForeignDatabase(
                f"{path} is a SQLite database of another program (application id {application:#x}, "
                f"{len(present)} tables, views and indexes); it was left as it is"
            )
        return False
    if version != FORMAT_VERSION:
        raise UnsupportedVersion(path, version, FORMAT_VERSION)
    if strange := sorted(present - {*_TABLES, _FULL_TEXT}):
        raise IntegrityBroken(f"{path} holds something this program did not create: {strange[0]:.200}")
    if missing := [sql for sql in _TABLES if sql not in present]:
        raise IntegrityBroken(f"{path} lacks a part of its schema: {missing[0]:.200}")
    return True


def has_full_text(db: Database) -> bool:
    """Say whether the file carries the full-text index."""
    return db.one("SELECT 1 FROM sqlite_schema WHERE name = 'node_text'") is not None


def state_chain(db: Database, statement: str) -> None:
    """Let a new file say how its chain is keyed."""
    db.run("INSERT INTO meta VALUES ('chain', ?)", (statement,))


def stated_chain(db: Database) -> str | None:
    """Return what a file says about its key, None if it has none."""
    row = db.one("SELECT value FROM meta WHERE key = 'chain'")
    return None if row is None else str(row[0])


def structure_problem(db: Database) -> str | None:
    """Return what SQLite itself finds wrong with the file; reads all of it."""
    (found,) = db.one("PRAGMA integrity_check(1)") or ("no answer",)
    return None if found == "ok" else f"SQLite finds damage: {found}"
