"""Passages from a graph: near in meaning, by words, both, and what feedback goes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from adapters.graph import GraphBridge, GraphRetriever
from agentloop import (
    ContextBudget,
    ContextConfig,
    FusedRetriever,
    MemoryLedgerStore,
    RetrievalOptions,
    context_prompt,
    create_assembler,
    replay,
)
from graphstate import Adaptogen, VerbFailed
from tests.agentloop.loop.scenes import make_loop, play, yes

pytestmark = pytest.mark.anyio

#: A meaning for each word; "pot" and "kettle" are near each other and share no letter's order.
MEANINGS = {
    "kettle": (1.0, 0.0, 0.0),
    "pot": (0.9, 0.1, 0.0),
    "chain": (0.0, 1.0, 0.0),
    "sky": (0.0, 0.0, 1.0),
}


def embed(text: str) -> tuple[float, ...]:
    known = [MEANINGS[word] for word in text.lower().rstrip(".?").split() if word in MEANINGS]
    return tuple(map(sum, zip(*known, strict=True))) if known else (-1.0, -1.0, -1.0)


@pytest.fixture
def graph() -> Iterator[Adaptogen]:
    with Adaptogen.open(":memory:", seed=False) as opened:
        for name, text in (("n1", "the kettle boils"), ("n2", "oil the chain"), ("n3", "the sky boils")):
            opened.remember(
                name, kind="semantic", status="active", payload={"text": text}, embedding=embed(text)
            ).unwrap()
        opened.remember(
            "n4", kind="semantic", status="archived", payload={"text": "kettle"}, embedding=(1, 0, 0)
        )
        opened.remember("n5", kind="task", status="active", label="a kettle task")
        yield opened


def ids(passages: Sequence[object]) -> list[object]:
    return [getattr(passage, "id", None) for passage in passages]


async def test_the_nearest_in_meaning_come_first_without_a_word_in_common(graph: Adaptogen) -> None:
    found = await GraphRetriever(graph, embed=embed).retrieve("pot", limit=5)
    assert ids(found) == ["n1", "n2"]
    assert found[0].text == "the kettle boils"
    assert found[0].score == pytest.approx(0.9939, abs=1e-4)
    assert found[0].retrieval_id == "n1"
    assert ids(await GraphRetriever(graph, embed=embed).retrieve("pot", limit=1)) == ["n1"]


async def test_an_embedder_may_be_awaited(graph: Adaptogen) -> None:
    async def later(text: str) -> tuple[float, ...]:
        return embed(text)

    assert ids(await GraphRetriever(graph, embed=later).retrieve("chain", limit=1)) == ["n2"]


async def test_by_words_a_node_with_more_of_them_comes_first(graph: Adaptogen) -> None:
    retriever = GraphRetriever(graph)
    assert ids(await retriever.retrieve("Which kettle boils?", limit=5)) == ["n1", "n5", "n3"]
    assert ids(await GraphRetriever(graph, kind="task").retrieve("kettle", limit=5)) == ["n5"]
    assert await retriever.retrieve("zeppelin", limit=5) == []


async def test_both_rankings_are_joined(graph: Adaptogen) -> None:
    both = FusedRetriever([GraphRetriever(graph, embed=embed, version="toy-1"), GraphRetriever(graph)])
    assert both.name == "fused(graph by embeddings toy-1, graph by words)"
    assert ids(await both.retrieve("pot boils", limit=3))[0] == "n1"


async def test_nothing_is_near_what_has_no_vector_or_points_away(graph: Adaptogen) -> None:
    with Adaptogen.open(":memory:", seed=False) as bare:
        bare.remember("n", kind="semantic", status="active", payload={"text": "kettle"}).unwrap()
        assert await GraphRetriever(bare, embed=embed).retrieve("kettle", limit=5) == []
    assert await GraphRetriever(graph, embed=embed).retrieve("nonsense", limit=5) == []
    for retriever in (GraphRetriever(graph, embed=embed), GraphRetriever(graph)):
        assert await retriever.retrieve("  ", limit=5) == []
        assert await retriever.retrieve("kettle", limit=0) == []


async def test_a_vector_of_another_length_is_refused(graph: Adaptogen) -> None:
    with pytest.raises(VerbFailed):
        await GraphRetriever(graph, embed=lambda text: (1.0, 2.0)).retrieve("kettle", limit=5)


async def test_what_was_shown_is_what_the_outcome_is_told(graph: Adaptogen) -> None:
    retriever = GraphRetriever(graph, embed=embed, version="toy-1")
    assembler = create_assembler(
        ContextConfig(
            budget=ContextBudget(total=2_000, reserve_for_output=100),
            system_prompt="You make tea.",
            retrieval=RetrievalOptions(retriever=retriever, k=1),
        )
    )
    store = MemoryLedgerStore()
    bridge = GraphBridge(graph, task="tea")
    loop = make_loop(
        ["ready"], [yes()], build_agent_prompt=context_prompt(assembler, goal="pot"), graph=bridge,
        forward_frames=["CONTEXT"], ledger=store, run_id="r",
    )  # fmt: skip
    frames = await play(loop)
    (context,) = [frame for frame in frames if frame.type == "CONTEXT"]
    assert context.content["retrieval_ids"] == ["n1"]
    assert context.content["report"]["notes"]["retriever"] == "graph by embeddings toy-1"
    assert replay(store, "r").ok
