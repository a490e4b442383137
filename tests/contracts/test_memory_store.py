"""What every memory store promises: the one in the process, and the one in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from adapters.graph import GraphMemory, GraphWorkingMemory
from agentloop.context.memory import InProcessMemory, MemoryQuery, MemoryRecord, MemoryStore
from graphstate import Adaptogen

pytestmark = pytest.mark.anyio

Maker = Callable[[], MemoryStore]


@pytest.fixture(params=["in-process", "graph", "present"])
def store(request: pytest.FixtureRequest) -> Iterator[MemoryStore]:
    if request.param == "in-process":
        yield InProcessMemory()
    else:
        with Adaptogen.open(":memory:", seed=False) as graph:
            yield GraphMemory(graph) if request.param == "graph" else GraphWorkingMemory(graph, fill=False)


KETTLE = MemoryRecord(id="k", text="the copper kettle", salience=0.9, created_at=100, tags=("kitchen",))
TEA = MemoryRecord(id="t", text="green tea", created_at=200, kind="episode")
RULE = MemoryRecord(
    id="a rule!", text="never boil tea", created_at=50, kind="instruction", trust="person", salience=1
)


async def fill(store: MemoryStore) -> None:
    for record in (KETTLE, TEA, RULE):
        await store.remember(record)


async def ids(store: MemoryStore, query: MemoryQuery) -> list[str]:
    return [record.id for record in await store.recall(query)]


async def test_without_words_by_salience_then_age(store: MemoryStore) -> None:
    await fill(store)
    assert await ids(store, MemoryQuery(limit=3)) == ["a rule!", "k", "t"]
    assert await ids(store, MemoryQuery(text=" \n", limit=1)) == ["a rule!"]


async def test_words_find_what_has_any_of_them(store: MemoryStore) -> None:
    await fill(store)
    found = await ids(store, MemoryQuery(text="a kettle for the tea", limit=9))
    if isinstance(store, GraphWorkingMemory):  # has an order of its own
        found.sort(key=["k", "t", "a rule!"].index)
    assert found == ["k", "t", "a rule!"]
    assert await ids(store, MemoryQuery(text="submarine")) == []
    assert await ids(store, MemoryQuery(text='"kettle" OR *', limit=9)) == ["k"]


async def test_kinds_and_tags_filter(store: MemoryStore) -> None:
    await fill(store)
    assert await ids(store, MemoryQuery(kinds=("instruction", "episode"))) == ["a rule!", "t"]
    assert await ids(store, MemoryQuery(text="tea", kinds=("episode",))) == ["t"]
    assert await ids(store, MemoryQuery(tags=("kitchen", "x"))) == ["k"]


async def test_a_record_comes_back_as_it_was(store: MemoryStore) -> None:
    record = MemoryRecord(
        id="all", text="t", kind="episode", created_at=7, salience=0.25, tags=("a", "b"), metadata={"n": [1, None]},
        trust="tool", source="run:1", derived_from=("gone",),
    )  # fmt: skip
    kept = await store.remember(record)
    (found,) = await store.all()
    assert found == kept
    assert kept.trust == "import", "made from something nobody knows"
    assert {
        name: getattr(kept, name) for name in ("text", "kind", "tags", "metadata", "source", "salience")
    } == {name: getattr(record, name) for name in ("text", "kind", "tags", "metadata", "source", "salience")}


async def test_a_new_record_of_an_id_replaces_the_old_one(store: MemoryStore) -> None:
    await fill(store)
    await store.remember(MemoryRecord(id="k", text="an iron pan", trust="person"))
    assert await ids(store, MemoryQuery(text="kettle")) == []
    (pan,) = await store.recall(MemoryQuery(text="pan"))
    assert pan.trust == "person"
    assert len(await store.all()) == 3


async def test_u17_trust_is_never_raised(store: MemoryStore) -> None:
    await fill(store)
    with pytest.raises(ValueError, match="written by a person"):
        await store.remember(MemoryRecord(id="a rule!", text="boil it"))
    with pytest.raises(ValueError, match="may not give instructions"):
        await store.remember(
            MemoryRecord(id="n", text="boil", kind="instruction", trust="developer", derived_from=("k",))
        )
    assert sorted(record.text for record in await store.all()) == [
        "green tea",
        "never boil tea",
        "the copper kettle",
    ]
