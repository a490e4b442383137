"""The facade: one object, one line for each verb."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from graphstate.activation.embedding import Embedder
from graphstate.errors import ErrorCode, Misuse
from graphstate.events import GRAPH, Draft, IdGen
from graphstate.model import Exported, Imported, OnConflict, Recovery
from graphstate.results import Fail, Ok, Result
from graphstate.store import MEMORY, LockMode, Store, Unit
from graphstate.store.anchor import Sink
from graphstate.store.db import Durability as DurabilityLevel
from graphstate.store.placing import placed, remove_database
from graphstate.verbs import arguments
from graphstate.verbs.activation import Activating
from graphstate.verbs.bundles import Bundles, Target
from graphstate.verbs.composing import Composing
from graphstate.verbs.durability import Durability
from graphstate.verbs.embedders import chosen_embedder
from graphstate.verbs.embedding import Embedding
from graphstate.verbs.evolution import Evolution
from graphstate.verbs.fsm import Moving
from graphstate.verbs.governance import Governance
from graphstate.verbs.intuition import Intuition
from graphstate.verbs.learning import Learning
from graphstate.verbs.memory import Memory
from graphstate.verbs.observe import Observation
from graphstate.verbs.recollection import Recollection
from graphstate.verbs.replication import Replication
from graphstate.verbs.reshaping import Reshaping
from graphstate.verbs.soundness import Soundness
from graphstate.verbs.structure import Structure
from graphstate.verbs.succession import Succession
from graphstate.verbs.verb import Verbs
from graphstate.verbs.zones import Zones

if TYPE_CHECKING:
    from graphstate.verbs.importing import Source

__all__ = ("Adaptogen", "DState", "OpenOptions", "export_state", "import_state")

DEFAULT_ACTOR = "developer"
TRUST_LEVELS = ("developer", "person", "model", "tool", "import")

_SEED_NODES = {
    "idle": "waiting for work",
    "working": "executing a task",
    "verifying": "checking the result",
    "done": "task complete",
}
_SEED_EDGES = (
    ("idle", "working"),
    ("working", "verifying"),
    ("verifying", "done"),
    ("verifying", "working"),
    ("done", "idle"),
)


class OpenOptions(TypedDict, total=False):
    """What `Adaptogen.import_state` hands on to `Adaptogen.open`."""

    actor: str
    trust: str
    now: Callable[[], int] | None
    rand: Callable[[], float] | None
    ids: IdGen | None
    durability: DurabilityLevel
    lock: LockMode
    busy_timeout_ms: int
    fts: bool


class Adaptogen(Verbs):
    """A graph that is memory, policy and intuition at once, in one file.

    Verbs that change the graph return `Ok` or `Fail`; plain reads return their value. One
    verb is one transaction; `unit` joins several.

    Example:
        >>> with Adaptogen.open(":memory:", seed=False) as graph:
        ...     _ = graph.remember("research", payload={"topic": "caches"})
        ...     _ = graph.remember("draft")
        ...     _ = graph.link("research", "draft")
        ...     _ = graph.set_cursor(["research"])
        ...     graph.transition("draft").unwrap().applied
        True
    """

    __slots__ = ("_imported", "_owner")

    def __init__(
        self, store: Store, *, actor: str, trust: str, owner: bool = True, embedder: Embedder | None = None
    ) -> None:
        super().__init__(store, actor=actor, trust=trust, embedder=embedder)
        self._owner = owner
        self._imported: Imported | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = ":memory:",
        *,
        seed: bool = True,
        actor: str = DEFAULT_ACTOR,
        trust: str = "developer",
        now: Callable[[], int] | None = None,
        rand: Callable[[], float] | None = None,
        ids: IdGen | None = None,
        durability: DurabilityLevel = "process",
        lock: LockMode = "shared",
        read_only: bool = False,
        busy_timeout_ms: int = 5_000,
        fts: bool = True,
        key: bytes | None = None,
        expect_head: str | None = None,
        anchor: Sink | None = None,
        anchor_every: int = 1_000,
        embedder: Embedder | str | None = None,
    ) -> Adaptogen:
        """Open a graph, making the file if it does not exist.

        Args:
            path: A file, or ``:memory:``.
            seed: Put four nodes, five edges and the zone ``safe`` around them into an empty graph.
            actor: Who acts, and whose cursor moves, where a verb does not say.
            trust: developer, person, model, tool or import; written into every event.
            now: Milliseconds since the epoch; with ``rand`` it makes a session repeatable.
            rand: Uniform in [0, 1).
            ids: Makes the ids of events, edges and snapshots.
            durability: ``process`` survives the death of the process, ``power`` also power
                loss. `durability` tells what SQLite reports.
            lock: ``exclusive`` owns the file until close or death.
            read_only: Change no byte.
            busy_timeout_ms: How long another process is waited for.
            fts: Use the full-text index; without it text recall reads the nodes.
            key: At least 16 secret bytes. A new file gets a chain that only who has them can
                continue; it is never opened without them. They are not stored.
            expect_head: What `head` or an anchor once said: the file must still hold that event.
            anchor: A function, or a file to append to, that is told the head as text after each
                checkpoint, rollback and compaction, at close, and every ``anchor_every`` events.
                If it fails, the graph goes on and warns once.
            anchor_every: Events between two tellings.
            embedder: Makes vectors of the texts of nodes, as they are remembered. An object, or
                the name of an installed one: ``hashing`` and ``ngrams`` need no model. ``stored``
                is the one that the graph's vectors are of, or none if that is not installed.

        Raises:
            OpenError: ForeignDatabase, UnsupportedVersion or WrongKey; the file is left as it was.
            StoreError: IntegrityBroken, LockHeld, Busy, ReadOnly or StorageFull.
            VerbFailed: InvalidInput for a bad actor, trust, ``expect_head`` or ``embedder``.
        """
        expected = None if expect_head is None else arguments.head(expect_head, "expect_head")
        arguments.identifier(actor, "actor")
        arguments.choice(trust, "trust", TRUST_LEVELS)
        store = Store.open(
            path, now=now, rand=rand, ids=ids, durability=durability, lock=lock, read_only=read_only,
            busy_timeout_ms=busy_timeout_ms, fts=fts, key=key, expect_head=expected, anchor=anchor,
            anchor_every=anchor_every,
        )  # fmt: skip
        graph = cls(store, actor=actor, trust=trust)
        try:
            graph.embedder = chosen_embedder(store, embedder)
            if seed and not read_only:
                graph._sow()
        except BaseException:
            store.close()
            raise
        return graph

    @classmethod
    def import_state(
        cls,
        path: str | os.PathLike[str],
        bundle: Source,
        *,
        merge: bool = False,
        on_conflict: OnConflict = "fail",
        expect_head: str | None = None,
        **options: Unpack[OpenOptions],
    ) -> Adaptogen:
        """Take a bundle over into an empty graph, and return the graph.

        Everything is checked, and all of it happens or nothing: after a failure the file is
        what it was, or still does not exist. Events keep ids, times and actors; their trust is
        ``import``. Locks are not taken over. `imported` says what came of it.

        Args:
            path: A file that does not exist or holds no events, or ``:memory:``.
            bundle: A path, or a binary file that is open for reading.
            merge: The graph may hold events. Cursors then stay; what both sides changed is a
                conflict; the same bundle, or a later one of the same origin, adds only what
                is new.
            on_conflict: As for `merge`.
            expect_head: Refuse any bundle whose origin did not end at this ``seq:hash``. Without
                it nobody vouches that the bundle is the one that was meant.
            options: Those of `open`, but for ``seed`` and ``read_only``.

        Raises:
            VerbFailed: InvalidBundle, Conflict, or what a verb would answer to the event at
                fault; ``details["line"]`` is its line.
            OpenError, StoreError: As for `open`.
        """
        name = os.fspath(path)
        if name == MEMORY or os.path.lexists(name):
            return cls._with_bundle(name, bundle, merge, on_conflict, expect_head, options)
        with placed(name) as draft:
            filled = cls._with_bundle(draft, bundle, merge, on_conflict, expect_head, options)
            filled.close()
        graph = cls.open(name, seed=False, **options)
        graph._imported = filled.imported
        return graph

    @classmethod
    def _with_bundle(
        cls, path: str, bundle: Source, merge: bool, on_conflict: OnConflict, expect_head: str | None,
        options: OpenOptions,
    ) -> Adaptogen:  # fmt: skip
        from graphstate.verbs.importing import readable, take_in

        with readable(bundle) as file:
            graph = cls.open(path, seed=False, **options)
            try:
                graph._imported = take_in(
                    graph, file, merge=merge, on_conflict=on_conflict, expect_head=expect_head
                )
            except BaseException:
                graph.close()
                raise
        return graph

    def _sow(self) -> None:
        if self.store.head().seq:
            return
        self.store.begin()
        try:
            if self.store.log.head(GRAPH).seq == 0:
                node: dict[str, Any] = {
                    "kind": "state",
                    "payload": {},
                    "tags": ["seed"],
                    "status": "active",
                    "embedding": None,
                }
                edge: dict[str, Any] = {
                    "kind": "transition",
                    "label": "",
                    "guard": None,
                    "enforcement": None,
                    "weight": 1,
                }
                for name, label in _SEED_NODES.items():
                    self.record(Draft("NodeUpserted", {**node, "id": name, "label": label}))
                for src, dst in _SEED_EDGES:
                    body = {**edge, "id": self.store.ids.next("G"), "src": src, "dst": dst}
                    self.record(Draft("EdgeUpserted", body))
                zone = {"name": "safe", "members": list(_SEED_NODES), "intra": "off", "boundary": "hard"}
                self.record(Draft("ZoneDefined", zone))
                self.record(Draft("CursorMoved", {"set": ["idle"]}))
        except BaseException:
            self.store.rollback()
            raise
        self.store.commit()

    def as_actor(self, actor: str, *, trust: str | None = None) -> Adaptogen:
        """Return the same graph for another actor, with a cursor of its own. Not to be closed."""
        arguments.identifier(actor, "actor")
        if trust is not None:
            arguments.choice(trust, "trust", TRUST_LEVELS)
        return Adaptogen(
            self.store, actor=actor, trust=trust or self.trust, owner=False, embedder=self.embedder
        )

    def unit(self, *, sync: bool = False) -> Unit:
        """Join verbs and `Store.append` in one transaction and one commit.

        If a verb inside fails, or an exception leaves the block, nothing is kept.

        Args:
            sync: The commit survives power loss.

        Raises:
            UnitFailed: On leaving the block, if a verb inside failed.
        """
        return self.store.unit(sync=sync)

    @property
    def path(self) -> str:
        """The file, or ``:memory:``."""
        return self.store.path

    @property
    def durability(self) -> str:
        """What SQLite reports: process, power, memory or read-only."""
        return self.store.durability

    @property
    def recovery(self) -> Recovery:
        """What opening had to repair."""
        return self.store.recovery

    @property
    def imported(self) -> Imported | None:
        """What `import_state` took over when it made this object; None otherwise."""
        return self._imported

    def discard(self) -> Result[bool]:
        """Close a branch and delete its file and all that SQLite put beside it.

        Conflict if this graph is no branch; nothing is closed then.
        """
        if not self._owner:
            raise Misuse("this graph was made by as_actor: discard the one it came from")
        if self.fork() is None:
            return Fail(
                ErrorCode.CONFLICT, f"{self.path} is no branch", {"hint": "only a branch can be discarded"}
            )
        self.store.close()
        if self.path != MEMORY:
            remove_database(self.path)
        return Ok(True)

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if not self._owner:
            raise Misuse("this graph was made by as_actor: close the one it came from")
        self.store.close()

    def __enter__(self) -> Adaptogen:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def describe(self) -> dict[str, Any]:
        """Return the manifest: verbs with signatures, error codes with hints, tunables."""
        from graphstate.manifest import describe

        return describe()

    # memory
    remember = Memory.remember
    get_node = Memory.get_node
    set_status = Memory.set_status
    archive = Memory.archive
    deprecate = Memory.deprecate
    recall = Memory.recall
    fts_enabled = Memory.fts_enabled

    # embeddings
    reembed = Embedding.reembed

    # replication
    export_deltas = Replication.export_deltas
    import_deltas = Replication.import_deltas

    # structure
    link = Structure.link
    depend = Structure.depend
    unlink = Structure.unlink
    get_edge = Structure.get_edge
    ready = Structure.ready
    topo = Structure.topo
    reachable = Structure.reachable
    ancestors = Structure.ancestors
    descendants = Structure.descendants

    # moving
    set_cursor = Moving.set_cursor
    cursor = Moving.cursor
    legal_moves = Moving.legal_moves
    explain_transition = Moving.explain_transition
    transition = Moving.transition

    # zones
    define_zone = Zones.define_zone
    set_zone_enforcement = Zones.set_zone_enforcement
    add_to_zone = Zones.add_to_zone
    remove_from_zone = Zones.remove_from_zone
    delete_zone = Zones.delete_zone
    derive_zone = Zones.derive_zone
    zones_of = Zones.zones_of
    zones = Zones.zones

    # governance
    set_enforcement = Governance.set_enforcement
    lock_policy = Governance.lock_policy
    unlock_policy = Governance.unlock_policy
    locks = Governance.locks

    # intuition
    suggest = Intuition.suggest
    step = Intuition.step
    reward = Intuition.reward
    get_stat = Intuition.get_stat

    # activation
    reinforce = Activating.reinforce
    reinforce_all = Activating.reinforce_all
    suppress = Activating.suppress
    release = Activating.release
    bump_attention = Activating.bump_attention
    effective = Activating.effective
    activation = Activating.activation
    top_activated = Activating.top_activated
    register_memory_class = Activating.register_memory_class

    # succession
    supersede = Succession.supersede
    unsupersede = Succession.unsupersede
    consolidate = Succession.consolidate
    expand = Succession.expand

    # recollection
    pulse = Recollection.pulse
    apulse = Recollection.apulse
    absorb = Recollection.absorb
    spread = Recollection.spread
    working_memory = Recollection.working_memory
    recognise = Recollection.recognise
    explain = Recollection.explain

    # learning
    feedback = Learning.feedback
    weights = Learning.weights
    set_weights = Learning.set_weights

    # composing
    plan = Composing.plan
    orient = Composing.orient

    # evolution
    optimize = Evolution.optimize
    reweight = Evolution.reweight
    self_iterate = Evolution.self_iterate
    gc = Evolution.gc
    pin = Evolution.pin
    unpin = Evolution.unpin

    # reshaping
    split_state = Reshaping.split_state
    merge_states = Reshaping.merge_states
    migrate = Reshaping.migrate

    # soundness
    validate = Soundness.validate
    repair = Soundness.repair

    # durability and integrity
    snapshot = Durability.snapshot
    checkpoint = Durability.checkpoint
    list_checkpoints = Durability.list_checkpoints
    rollback = Durability.rollback
    cuts = Durability.cuts
    compact = Durability.compact
    rebuild = Durability.rebuild
    verify_integrity = Durability.verify_integrity
    set_tunable = Durability.set_tunable
    get_tunables = Durability.get_tunables

    # bundles and branches
    export = Bundles.export
    if TYPE_CHECKING:
        # The family does not know the facade; whoever calls gets one.
        def branch(self, file: str | os.PathLike[str]) -> Result[Adaptogen]: ...
    else:
        branch = Bundles.branch
    fork = Bundles.fork
    merge = Bundles.merge

    # observation
    history = Observation.history
    changes = Observation.changes
    subscribe = Observation.subscribe
    metrics = Observation.metrics
    render = Observation.render
    to_mermaid = Observation.to_mermaid
    to_dot = Observation.to_dot
    head = Observation.head


#: The other name of the same class.
DState = Adaptogen

#: Take a bundle over into an empty graph; the same as `Adaptogen.import_state`.
import_state = Adaptogen.import_state


def export_state(graph: Adaptogen, file: Target, *, overwrite: bool = False) -> Result[Exported]:
    """Write a graph as a bundle; see `Adaptogen.export`."""
    return graph.export(file, overwrite=overwrite)
