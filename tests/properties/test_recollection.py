"""Whatever is remembered, searched, judged and undone: a replay of the log gives the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate import Adaptogen, Fail, HashingEmbedder
from tests.graphstate.bundles import live

NODES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.sampled_from(["tea", "tea rain", "rain", "cup of tea", ""])
SCOPES = st.sampled_from(["global", "me"])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), NODES, TEXTS),
        st.tuples(st.just("reinforce"), NODES, st.sampled_from([0.1, 0.5, 3, -0.2])),
        st.tuples(st.just("suppress"), NODES, st.sampled_from([0.2, 0.7])),
        st.tuples(st.just("supersede"), NODES, NODES),
        st.tuples(st.just("consolidate"), NODES, NODES),
        st.tuples(st.just("absorb"), TEXTS, SCOPES),
        st.tuples(st.just("judge"), TEXTS, st.booleans()),
        st.tuples(st.just("weigh"), SCOPES, st.sampled_from([0, 0.5, 2])),
        st.tuples(st.just("wait"), st.integers(0, 10**9), st.none()),
        st.tuples(st.just("model"), st.sampled_from([4, 16]), st.booleans()),
        st.tuples(st.just("given"), NODES, st.integers(0, 3)),
        st.tuples(st.just("mark"), st.none(), st.none()),
        st.tuples(st.just("return"), st.none(), st.none()),
    ),
    max_size=25,
)


class Session:
    """A graph, its clock, and what can be done with both. Refusals are part of it."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.graph = Adaptogen.open(":memory:", seed=False, now=lambda: self.ms, rand=lambda: 0.5)

    def do(self, name: str, one: Any, other: Any) -> None:
        graph = self.graph
        if name == "remember":
            graph.remember(one, payload={"text": other}).unwrap()
        elif name in ("reinforce", "suppress"):
            getattr(graph, name)(one, other)
        elif name == "supersede":
            graph.supersede(one, other)
        elif name == "consolidate":
            graph.consolidate(one, [other])
        elif name == "absorb":
            graph.absorb(one, scope=other, habituate=True).unwrap()
        elif name == "judge":
            found = graph.pulse(one, scope="me", log=True)
            for hit in found.hits[:2]:
                graph.feedback(found.retrieval_id, hit.id, other).unwrap()
                assert graph.feedback(found.retrieval_id, hit.id, not other).unwrap().useful is other
        elif name == "weigh":
            graph.set_weights({"usage": other}, scope=one).unwrap()
        elif name == "wait":
            self.ms += one
        elif name == "mark":
            graph.checkpoint("mark").unwrap()
        elif name == "model":
            graph.embedder = HashingEmbedder(dimensions=one, ngrams=other)
            graph.reembed(batch=2).unwrap()
        elif name == "given":
            space = graph.store.projection.vectors.space()
            vector = [float(place == other) for place in range(4 if space is None else space.dimensions)]
            graph.remember(one, embedding=vector).unwrap()
        else:
            assert graph.rollback("mark").ok or isinstance(graph.rollback("mark"), Fail)
            if graph.embedder is not None:  # the vectors may be of another model again
                graph.reembed().unwrap()


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_a_replay_of_what_was_learned_is_what_lives(steps: list[tuple[str, Any, Any]]) -> None:
    session = Session()
    with session.graph as graph:
        for step in steps:
            session.do(*step)
        found = graph.pulse("tea rain", scope="me")
        assert all(0 <= hit.score <= 1 + 1e-9 for hit in found.hits)
        assert [(-hit.score, hit.id) for hit in found.hits] == sorted(
            (-hit.score, hit.id) for hit in found.hits
        )
        assert all(hit.signals.get("semantic", 0) <= 1 for hit in found.hits)
        before = (live(graph), graph.weights(scope="me"), graph.weights())
        report = graph.verify_integrity(deep=True)
        assert report.ok, report
        graph.rebuild().unwrap()
        assert (live(graph), graph.weights(scope="me"), graph.weights()) == before
        assert graph.pulse("tea rain", scope="me").hits == found.hits
