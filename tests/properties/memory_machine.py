"""The verbs of the adaptive memory, on two handles and on the model.

The first handle has an embedder, the second one none, so that vectors grow stale. Values halve
in thirty years here: how they fade is for other tests, this one adds up.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from graphstate import Adaptogen, ErrorCode, VerbFailed
from graphstate._canonical import decode, encode
from graphstate.activation.embedding import HashingEmbedder
from graphstate.model import Deltas, PulseHit, from_json, to_json
from tests.properties.graph_machine import CAUSES, HANDLES, NODES, GraphMachine, edge_shown, shown
from tests.properties.graph_model import Failed
from tests.properties.memory_model import EMBEDDER, MemoryModel, Part, Record, clamp, vector_of

ANY_NODE = st.sampled_from(["a", "a", "b", "b", "c", "c", "d", "e", "f", "g"])
AMOUNTS = st.sampled_from([0, 0.25, 0.25, 0.5, 0.5, 1, -0.25, -0.5, 2e6])
CONTEXTS = st.sampled_from([None, None, "k", "m"])
OUTCOMES = st.sampled_from([None, None, "shown", "useful", "harmful"])
KINDS = st.sampled_from(["state", "fact", "task"])
CLASSES = st.sampled_from([None, "episodic", "semantic", "entity"])
SCOPES = st.sampled_from(["global", "s"])
RULES = st.sampled_from(["centred", "additive", "contrast"])
QUERIES = st.sampled_from(["a", "b c", "a b c d", "in a unit", "nothing like it"])
PROVENANCES = st.fixed_dictionaries(
    {},
    optional={
        "memory_class": CLASSES,
        "confidence": st.sampled_from([None, 0.5, 1]),
        "supersedes": st.sampled_from([None, "a"]),
        "derived_from": st.none() | st.lists(NODES, max_size=2, unique=True),
    },
)
SIGNALS = st.dictionaries(st.sampled_from(["semantic", "graph", "usage"]), st.sampled_from([0.0, 0.5, 1.0]))
WEIGHTS = st.dictionaries(
    st.sampled_from(["semantic", "lexical", "graph", "usage", "inhibition"]), st.sampled_from([0, 0.5, 2, -1])
)
YEARS_MS = 10**12
DEFAULTS: dict[str, Any] = {"memory_class": None, "confidence": None, "supersedes": None, "derived_from": []}


class MemoryMachine(GraphMachine):
    """What is present, what takes whose place, and what proved useful."""

    model: MemoryModel

    def __init__(self) -> None:
        #: what each handle has noticed
        self.attention: list[dict[str, float]] = [{}, {}]
        super().__init__()
        self.model = MemoryModel()
        #: searches with the handle that remembers them, None for the file
        self.searches: dict[str, tuple[Adaptogen | None, str, tuple[PulseHit, ...]]] = {}
        #: the newest export, with the rollbacks that were before it
        self.exported: Deltas | None = None
        self.cuts = -1
        self.replicated = 0

    def open(self, handle: int) -> Adaptogen:
        self.attention[handle] = {}
        return Adaptogen.open(
            self.path, seed=False, now=self.now, embedder=None if handle else EMBEDDER
        )  # fmt: skip

    @initialize(handle=HANDLES)
    def let_nothing_fade(self, handle: int) -> None:
        graph = self.graphs[handle]
        for kind in ("score", "importance", "inhibition", "attention"):
            graph.set_tunable(f"{kind}HalfLifeMs", YEARS_MS).unwrap()
        slow = {"score": YEARS_MS, "importance": YEARS_MS}
        classes = dict.fromkeys(("episodic", "semantic", "procedural", "entity"), slow)
        graph.set_tunable("classHalfLives", classes).unwrap()

    # ------------------------------------------------------------------ what every rule needs

    def known(self, *nodes: str | None) -> None:
        if any(node is not None and node not in self.model.nodes for node in nodes):
            raise Failed(ErrorCode.NOT_FOUND)

    def repeats(self, verb: str, cause: str | None, value: Any) -> bool:
        """Say whether a cause was used before; the first answer is given again."""
        if cause is None or cause not in self.model.causes:
            return False
        other, first = self.model.causes[cause]
        if other != verb:
            raise Failed(ErrorCode.CONFLICT)
        assert value() == first
        return True

    def written(self, handle: int, type: str, *, after: int) -> list[dict[str, Any]]:
        """What the events of a type say that were written last."""
        rows = self.graphs[handle].store.read("graph", after=after)
        return [decode(row.body) for row in rows if row.type == type]

    def head(self, handle: int) -> int:
        return self.graphs[handle].store.head().seq

    def shows_memory(self, state: Any, *, handle: int) -> None:
        node, record = state.id, self.model.records[state.id]
        attention = self.attention[handle].get(node, 0)
        superseded = self.model.superseded(node)
        effective = 0 if superseded else record.effective(attention=attention)
        told = (state.score, state.importance, state.inhibition, state.attention, state.effective)
        expected = (clamp(record.score), clamp(record.importance), clamp(record.inhibition or 0))
        assert told == pytest.approx((*expected, attention, effective), abs=1e-6), node
        assert state.reinforcement_count == record.count
        assert {name: getattr(state, name) for name in record.outcomes} == record.outcomes
        assert (state.superseded, state.memory_class) == (superseded, self.model.memory_class(node))
        lenses = record.lenses.items()
        scores = {name: clamp(lens.score) for name, lens in lenses}
        assert dict(state.contexts) == pytest.approx(scores, abs=1e-6)
        held = {name: clamp(lens.inhibition) for name, lens in lenses if lens.inhibition is not None}
        assert dict(state.inhibitions) == pytest.approx(held, abs=1e-6)

    # ------------------------------------------------------------------ what is present

    @rule(handle=HANDLES, id=ANY_NODE, amount=AMOUNTS, context=CONTEXTS, outcome=OUTCOMES, cause=CAUSES)
    def reinforce(
        self, handle: int, id: str, amount: float, context: str | None, outcome: Any, cause: str | None
    ) -> None:
        graph = self.graphs[handle]
        with self.expecting(
            lambda: graph.reinforce(id, amount, context=context, outcome=outcome, cause=cause)
        ) as value:
            if self.repeats("reinforce", cause, value):
                return
            if amount > 1e6:
                raise Failed(ErrorCode.INVALID_INPUT)
            self.known(id)
            self.model.reinforce(id, amount, context, outcome)
            self.shows_memory(value(), handle=handle)
            if cause is not None:
                self.model.causes[cause] = ("reinforce", value())

    @rule(handle=HANDLES, items=st.lists(st.tuples(ANY_NODE, AMOUNTS, CONTEXTS, OUTCOMES), max_size=3))
    def reinforce_all(self, handle: int, items: list[tuple[str, float, str | None, str | None]]) -> None:
        told = [
            {"id": node, "amount": amount, "context": context, "outcome": outcome}
            for node, amount, context, outcome in items
        ]
        with self.expecting(lambda: self.graphs[handle].reinforce_all(told)) as value:
            for node, amount, _, _ in items:
                if amount > 1e6:
                    raise Failed(ErrorCode.INVALID_INPUT)
                self.known(node)
            for item in items:
                self.model.reinforce(*item)
            assert value().count == len(items)

    @rule(handle=HANDLES, id=ANY_NODE, amount=AMOUNTS, context=CONTEXTS)
    def suppress(self, handle: int, id: str, amount: float, context: str | None) -> None:
        with self.expecting(lambda: self.graphs[handle].suppress(id, amount, context=context)) as value:
            if amount > 1e6:
                raise Failed(ErrorCode.INVALID_INPUT)
            self.known(id)
            self.model.suppress(id, amount, context)
            self.shows_memory(value(), handle=handle)

    @rule(handle=HANDLES, id=ANY_NODE, amount=st.sampled_from([None, None, 0.25, 0, -1]), context=CONTEXTS)
    def release(self, handle: int, id: str, amount: float | None, context: str | None) -> None:
        with self.expecting(lambda: self.graphs[handle].release(id, amount=amount, context=context)) as value:
            if amount is not None and amount < 0:
                raise Failed(ErrorCode.INVALID_INPUT)
            self.known(id)
            taken = self.model.suppression(id, context) if amount is None else amount
            self.model.suppress(id, -taken, context)
            self.shows_memory(value(), handle=handle)

    @rule(handle=HANDLES, id=ANY_NODE, amount=st.sampled_from([0.02, 0.02, 0.04, -0.02, 0.5]))
    def bump_attention(self, handle: int, id: str, amount: float) -> None:
        with self.expecting(lambda: self.graphs[handle].bump_attention(id, amount)) as value:
            self.known(id)
            noticed = clamp(self.attention[handle].get(id, 0) + amount)
            promoted = noticed >= 0.05
            self.attention[handle][id] = 0 if promoted else noticed
            if promoted:
                self.model.reinforce(id, noticed)
            assert value().promoted == promoted
            assert value().attention == pytest.approx(self.attention[handle][id], abs=1e-6)

    @rule(handle=HANDLES, kind=KINDS, name=CLASSES | st.just("nonsense"))
    def register_memory_class(self, handle: int, kind: str, name: Any) -> None:
        with self.expecting(lambda: self.graphs[handle].register_memory_class(kind, name)) as value:
            if name == "nonsense":
                raise Failed(ErrorCode.INVALID_INPUT)
            self.model.classes.pop(kind, None)
            if name is not None:
                self.model.classes[kind] = name
            assert value() == self.model.classes

    @rule(handle=HANDLES, id=NODES, told=PROVENANCES)
    def remember_where_it_comes_from(self, handle: int, id: str, told: dict[str, Any]) -> None:
        model = self.model
        node = self.graphs[handle].remember(id, memory=told).unwrap()
        model.declare(id, handle) if id not in model.nodes else self.remembered_again(id, handle)
        known = model.provenance.setdefault(id, {})
        for part, value in told.items():
            known.pop(part, None)
            if value not in (None, []):
                known[part] = value
        assert shown(node) == model.nodes[id]

    def remembered_again(self, id: str, handle: int) -> None:
        state = self.model.nodes[id]
        self.model.put_node(id, {**state, "version": state["version"] + 1}, handle)

    # ------------------------------------------------------------------ succession

    @rule(handle=HANDLES, new=ANY_NODE, old=ANY_NODE)
    def supersede(self, handle: int, new: str, old: str) -> None:
        model, graph, head = self.model, self.graphs[handle], self.head(handle)
        with self.expecting(lambda: graph.supersede(new, old)) as value:
            self.known(new, old)
            before = [edge for edge, node in model.edges_to_successors(old) if node == new]
            if before:
                assert value().edge_id == before[0]
                assert self.head(handle) == head
            else:
                model.refuse_circle(new, old)
                model.supersede(new, old, value().edge_id)
            assert (value().new, value().old) == (new, old)

    @rule(handle=HANDLES, old=ANY_NODE, by=st.none() | ANY_NODE)
    def unsupersede(self, handle: int, old: str, by: str | None) -> None:
        with self.expecting(lambda: self.graphs[handle].unsupersede(old, by=by)) as value:
            self.known(old, by)
            edges = [edge for edge, node in self.model.edges_to_successors(old) if by in (None, node)]
            if not edges:
                raise Failed(ErrorCode.NOT_FOUND)
            for edge in edges:
                self.model.drop_edge(edge)
            assert shown(value()) == self.model.nodes[old]

    @precondition(lambda self: any(self.model.ties("superseded_by")))
    @rule(handle=HANDLES, data=st.data())
    def unsupersede_one(self, handle: int, data: st.DataObject) -> None:
        ties = sorted({(src, dst) for _, src, dst in self.model.ties("superseded_by")})
        old, by = data.draw(st.sampled_from(ties))
        if data.draw(st.booleans()):
            self.supersede(handle, old, by)  # a circle
        self.unsupersede(handle, old, by)

    @rule(
        handle=HANDLES,
        id=ANY_NODE,
        sources=st.lists(ANY_NODE, min_size=1, max_size=3) | st.just([]),
        amount=st.sampled_from([0.5, 0]),
        label=st.none() | st.just("sum"),
    )
    def consolidate(self, handle: int, id: str, sources: list[str], amount: float, label: str | None) -> None:
        model, graph, head = self.model, self.graphs[handle], self.head(handle)
        with self.expecting(lambda: graph.consolidate(id, sources, suppress=amount, label=label)) as value:
            if not sources or id in sources:
                raise Failed(ErrorCode.INVALID_INPUT)
            self.known(*sources)
            if id not in model.nodes:
                model.declare(id, handle)
                model.put_node(id, {**model.nodes[id], "label": label or id}, handle)
            elif label is not None:
                model.nodes[id] = {**model.nodes[id]}
                state = {**model.nodes[id], "label": label, "version": model.nodes[id]["version"] + 1}
                model.put_node(id, state, handle)
            answer = value()
            (told,) = self.written(handle, "memory.consolidated", after=head)
            assert told["sources"] == list(dict.fromkeys(sources))
            model.consolidate(id, told["sources"], amount, told["edges"])
            assert shown(answer) == model.nodes[id]
            assert [node.id for node in graph.expand(id)] == model.sources(id)

    @precondition(lambda self: any(name.startswith("G") for name in self.model.edges))
    @rule(handle=HANDLES, data=st.data())
    def cut_a_tie(self, handle: int, data: st.DataObject) -> None:
        ties = sorted(name for name in self.model.edges if name.startswith("G"))
        self.unlink(handle, data.draw(st.sampled_from(ties)))

    # ------------------------------------------------------------------ searching and learning

    @rule(
        handle=HANDLES, query=QUERIES, scope=SCOPES, context=CONTEXTS, gain=st.sampled_from([None, 0.5]),
        most=st.sampled_from([1, 0.1]),
    )  # fmt: skip
    def absorb(
        self, handle: int, query: str, scope: str, context: str | None, gain: float | None, most: float
    ) -> None:
        graph, model = self.graphs[handle], self.model
        done = graph.absorb(
            query, scope=scope, context=context, gain=gain, threshold=0.1, min_match=0, most=most
        ).unwrap()
        scores = {hit.id: hit.score for hit in done.pulse.hits}
        assert all(model.active(node) and not model.superseded(node) for node in scores)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert dict(done.pulse.weights) == pytest.approx(model.weights_of(scope), abs=1e-9)
        share = 0.05 if gain is None else gain
        whole = {node: clamp(share * scores[node]) for node in done.amounts}
        scale = min(1, most / math.fsum(whole.values())) if whole else 1
        assert dict(done.amounts) == pytest.approx({node: scale * part for node, part in whole.items()})
        for node, amount in done.amounts.items():
            if amount:
                model.reinforce(node, amount, context)
        self.searches[done.pulse.retrieval_id] = (graph, scope, done.pulse.hits)

    @rule(handle=HANDLES, query=QUERIES, scope=SCOPES, log=st.booleans())
    def search(self, handle: int, query: str, scope: str, log: bool) -> None:
        found = self.graphs[handle].pulse(query, scope=scope, log=log)
        self.searches[found.retrieval_id] = (None if log else self.graphs[handle], scope, found.hits)

    @rule(
        handle=HANDLES, data=st.data(), useful=st.booleans(), how=RULES, rate=st.sampled_from([0.05, 1, 0]),
        scope=st.none() | SCOPES, signals=st.none() | st.none() | SIGNALS,
    )  # fmt: skip
    def feedback(
        self, handle: int, data: st.DataObject, useful: bool, how: Any, rate: float, scope: str | None,
        signals: dict[str, float] | None,
    ) -> None:  # fmt: skip
        model, graph = self.model, self.graphs[handle]
        if not self.searches:
            self.search(handle, "a b c d", "s", False)
        search = data.draw(st.sampled_from([*self.searches][-5:]))
        owner, whose, hits = self.searches[search]
        node = data.draw(st.sampled_from([*(hit.id for hit in hits), "a", "g"]))
        remembered = owner in (None, graph)
        place = next((place for place, hit in enumerate(hits) if hit.id == node), None)
        to = scope or (whose if remembered else "global")
        with self.expecting(
            lambda: graph.feedback(search, node, useful, rule=how, rate=rate, scope=scope, signals=signals)
        ) as value:
            self.known(node)
            before = model.verdicts.get((search, node))
            if before is None and signals is None and (place is None or not remembered):
                raise Failed(ErrorCode.NOT_FOUND)
            if before is None and signals == {}:
                raise Failed(ErrorCode.INVALID_INPUT)
            if before is None:
                shown_before: dict[str, float] = {}
                if signals is None and place:
                    ahead = [hit.signals for hit in hits[:place]]
                    for name in ahead[0]:
                        mean = sum(each.get(name, 0) for each in ahead) / len(ahead)
                        shown_before[name] = mean
                told = dict(hits[place].signals) if signals is None and place is not None else signals or {}
                model.judge(
                    search, node, useful, rule=how, rate=rate, scope=to, signals=told, others=shown_before
                )
            assert value().useful == (useful if before is None else before)
            assert dict(value().weights) == pytest.approx(model.weights_of(to), abs=1e-9)

    @rule(handle=HANDLES, scope=SCOPES, weights=WEIGHTS)
    def set_weights(self, handle: int, scope: str, weights: dict[str, float]) -> None:
        with self.expecting(lambda: self.graphs[handle].set_weights(weights, scope=scope)) as value:
            if not weights or min(weights.values()) < 0:
                raise Failed(ErrorCode.INVALID_INPUT)
            self.model.set_weights(scope, weights)
            assert value() == pytest.approx(self.model.weights_of(scope), abs=1e-9)

    # ------------------------------------------------------------------ vectors

    @rule(handle=HANDLES, missing=st.booleans(), limit=st.none() | st.integers(0, 2))
    def reembed(self, handle: int, missing: bool, limit: int | None) -> None:
        graph, model = self.graphs[handle], self.model
        with self.expecting(lambda: graph.reembed(missing=missing, limit=limit, batch=2)) as value:
            if handle == 1:
                raise Failed(ErrorCode.INVALID_INPUT)
            todo = model.without_vector() if missing else []
            made = todo[:limit]
            model.vectors |= {node: model.text(node) for node in made}
            assert (value().embedded, value().left) == (len(made), len(todo) - len(made))

    @rule(missing=st.booleans(), limit=st.none() | st.integers(0, 2))
    def change_the_model(self, missing: bool, limit: int | None) -> None:
        """Another model comes, and the first one again; meanwhile nothing is found by meaning."""
        model = self.model
        with Adaptogen.open(
            self.path, seed=False, now=self.now, embedder=HashingEmbedder(dimensions=4)
        ) as other:
            head = other.head()
            refused = other.remember("a")
            assert not refused.ok
            assert (refused.code, other.head()) == (ErrorCode.EMBEDDING_MISMATCH, head)
            done = other.reembed(missing=missing, limit=limit).unwrap()
            todo = [node for node in model.nodes if missing or node in model.vectors]
            made = todo[:limit]
            assert (done.embedded, done.left) == (len(made), len(todo) - len(made))
            if model.vectors.keys() - set(made):
                with pytest.raises(VerbFailed) as failed:
                    other.pulse([1, 0, 0, 0] if not missing else "a")
                assert failed.value.code == ErrorCode.EMBEDDING_MISMATCH
        again = self.graphs[0].reembed().unwrap()
        assert (again.embedded, again.left) == (len(model.nodes), 0)
        model.vectors = {node: model.text(node) for node in model.nodes}

    # ------------------------------------------------------------------ replicas, branches, units

    @rule(handle=HANDLES, threshold=st.sampled_from([0, 0.1, 0.3, 0.6]), again=st.booleans())
    def export_deltas(self, handle: int, threshold: float, again: bool) -> None:
        """All since it began, or all since the last time; then what waited."""
        graph, model, head = self.graphs[handle], self.model, self.head(handle)
        since = self.exported.cursor if again and self.exported is not None else None
        with self.expecting(lambda: graph.export_deltas(since=since, threshold=threshold)) as value:
            began = head + 1 if model.began is None else model.began
            after, carried = began, []
            if since is not None and self.cuts == graph.metrics().cuts:
                _, seq, *waiting = since.split("/")
                after = int(seq)
                carried = [int(each) for each in waiting[0].split(",")] if waiting else []
            if model.began is not None and min(after, *(seq - 1 for seq in carried), after) < self.start():
                raise Failed(ErrorCode.CONFLICT)
            first = value()
            model.began = began
            parts = model.parts.items()
            wanted = {name: part for name, part in parts if part.seq > after or part.seq in carried}
            sums = model.sums(wanted.values())
            waits = {
                key
                for key, parts in sums.items()
                if abs(sum(part.amount for part in parts)) < threshold
                and not any(part.outcome for part in parts)
            }
            assert [key_of(op) for op in first.ops] == [key for key in sums if key not in waits]
            assert (first.carried, first.more) == (sum(len(sums[key]) for key in waits), False)
            rest = graph.export_deltas(since=first.cursor, flush=True).unwrap()
            assert {key_of(op) for op in rest.ops} == waits
            sent = [part.id for op in (*first.ops, *rest.ops) for part in op.parts]
            assert sorted(sent) == sorted(wanted)
            self.exported, self.cuts = first, graph.metrics().cuts

    def start(self) -> int:
        return self.graphs[0].store.log.start("graph").seq

    @rule(handle=HANDLES, elsewhere=st.booleans(), json=st.booleans(), to=st.none() | ANY_NODE)
    def import_deltas(self, handle: int, elsewhere: bool, json: bool, to: str | None) -> None:
        """One's own deltas change nothing; those that a rollback undid, or of others, are added."""
        if self.exported is None:
            self.export_deltas(handle, 0, False)
            self.reinforce_all(handle, [("a", 0.5, None, None), ("b", 0.25, "k", "useful")])
            self.what_was_added_is_known()
            self.export_deltas(handle, 0.3, False)
        if self.exported is None:  # what began long ago was compacted
            return
        model, head, deltas = self.model, self.head(handle), self.exported
        if elsewhere:
            self.replicated += 1
            told = decode(encode(to_json(deltas)))
            for op in told["ops"]:
                op["node"] = to or op["node"]
                for part in op["parts"]:
                    part["id"] = f"elsewhere-{self.replicated}-{part['id']}"
            deltas = from_json(Deltas, told)
        parts = [(op, part) for op in deltas.ops for part in op.parts]
        done = self.graphs[handle].import_deltas(decode(encode(to_json(deltas))) if json else deltas).unwrap()
        if model.began is None:
            model.began = head + 1
        unknown = {op.node for op in deltas.ops} - set(model.nodes)
        known = [part.id for _, part in parts if part.id in model.parts]
        fresh = [
            (op, part) for op, part in parts if part.id not in model.parts and op.node not in unknown
        ]  # fmt: skip
        assert (done.known, done.applied) == (len(known), len(fresh))
        assert done.unknown == tuple(sorted(unknown))
        for op, part in fresh:
            if op.kind == "reinforced":
                model.reinforce(op.node, part.amount, op.context, part.outcome)
            else:
                model.suppress(op.node, part.amount, op.context)

    @rule(
        handle=HANDLES, id=ANY_NODE, other=ANY_NODE, context=CONTEXTS, both=st.booleans(),
        clash=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def learn_in_a_branch(
        self, handle: int, id: str, other: str, context: str | None, both: bool, clash: bool
    ) -> None:
        """What was added on both sides counts from both; weights that both set are a conflict."""
        graph, model = self.graphs[handle], self.model
        if id not in model.nodes:
            return
        search = f"elsewhere-{self.head(handle)}"
        with graph.branch(":memory:").unwrap() as branch:
            branch.reinforce(id, 0.5, context=context).unwrap()
            branch.suppress(id, 0.25, context=context).unwrap()
            branch.set_weights({"usage": 0.5}, scope="s").unwrap()
            branch.feedback(search, id, True, rule="additive", signals={"graph": 1.0}).unwrap()
            superseding = branch.supersede(id, other)
            assert branch.verify_integrity(deep=True).ok
            if both:
                self.reinforce(handle, id, 0.25, context, "useful", None)
                self.release(handle, id, None, context)
            if clash:
                self.set_weights(handle, "s", {"graph": 2})
            with self.expecting(lambda: graph.merge(branch)) as value:
                if clash:
                    raise Failed(ErrorCode.CONFLICT)
                new = superseding.ok and all(
                    superseding.value.edge_id != edge for edge, _ in model.edges_to_successors(other)
                )
                assert value().merged == 4 + new
                model.reinforce(id, 0.5, context)
                model.suppress(id, 0.25, context)
                model.set_weights("s", {"usage": 0.5})
                model.judge(
                    search, id, True, rule="additive", rate=0.05, scope="global", signals={"graph": 1.0},
                    others={},
                )  # fmt: skip
                if new:
                    assert superseding.ok
                    model.supersede(id, other, superseding.value.edge_id)
            assert clash or graph.merge(branch).unwrap().merged == 0

    @rule(handle=HANDLES, id=NODES, other=NODES)
    def learn_in_a_unit_that_fails(self, handle: int, id: str, other: str) -> None:
        graph, before = self.graphs[handle], copy.deepcopy(self.model)
        with pytest.raises(KeyError), graph.unit():
            self.remember(handle, id, "in a unit", None, "keep", {}, None, "active", None)
            self.reinforce(handle, id, 1, "k", "useful", None)
            self.consolidate(handle, "e" if id != "e" else "d", [id], 0.5, None)
            if graph.get_node(other) is not None and other != id and not self.model.superseded(id):
                self.supersede(handle, other, id)
            raise KeyError(id)
        self.model = before

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def what_was_added_is_known(self) -> None:
        """Follow the log, as replicas do."""
        if self.model.began is None:
            return
        for row in self.graphs[1].store.read("graph", after=max(self.model.began, self.model.read_up_to)):
            self.model.read_up_to = row.seq
            if row.type in ("memory.reinforced", "memory.suppressed"):
                body = decode(row.body)
                key = (body["id"], row.type.removeprefix("memory."), body.get("context"))
                assert row.id is not None
                self.model.parts[row.id] = Part(row.seq, key, body["amount"], body.get("outcome"))

    @invariant()
    def memories_are_those_of_the_model(self) -> None:
        handle, model = self.clock % 2, self.model
        graph = self.graphs[handle]
        for node in graph.recall(limit=1_000):
            state = graph.activation(node.id)
            assert (state is None) == (node.id not in model.records), node.id
            if state is not None:
                self.shows_memory(state, handle=handle)
            expected = model.vectors.get(node.id)
            assert (node.embedding is None) == (expected is None), node.id
            if expected is not None:
                assert node.embedding == pytest.approx(vector_of(expected), abs=1e-6)
            told = decode(encode({} if node.memory is None else to_json(node.memory)))
            assert DEFAULTS | told == DEFAULTS | model.provenance.get(node.id, {}), node.id

    @invariant()
    def orders_and_weights_are_those_of_the_model(self) -> None:
        handle, model = self.clock % 2, self.model
        graph, all_of_them = self.graphs[handle], self.clock % 3 == 0
        context = "k" if self.clock % 5 == 0 else None
        ranked = graph.top_activated(
            limit=1_000, context=context, include_superseded=all_of_them, min_score=1e-3
        )  # fmt: skip
        expected = {
            node: model.records.get(node, Record()).effective(
                context=context, attention=self.attention[handle].get(node, 0)
            )
            for node in model.nodes
            if model.active(node) and (all_of_them or not model.superseded(node))
        }
        told = {entry.id: entry.effective for entry in ranked}
        assert told == pytest.approx({node: part for node, part in expected.items() if part > 1e-3}, abs=1e-6)
        assert list(told.values()) == sorted(told.values(), reverse=True)
        for scope in ("global", "s"):
            assert graph.weights(scope=scope) == pytest.approx(model.weights_of(scope), abs=1e-9)
        assert sum(graph.metrics().edges.values()) == len(model.edges)
        for name, edge in model.edges.items():
            if name.startswith("G"):
                found = graph.get_edge(name)
                assert found is not None
                assert edge_shown(found) == edge | {"learned_enforcement": None}


def key_of(delta: Any) -> tuple[str, str, str | None]:
    return delta.node, delta.kind, delta.context
