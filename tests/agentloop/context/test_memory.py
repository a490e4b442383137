"""What memories answer, and what trust forbids."""

from __future__ import annotations

import itertools

import pytest

from agentloop.context.memory import InProcessMemory, MemoryQuery, MemoryRecord, lowest_trust

pytestmark = pytest.mark.anyio

M1 = MemoryRecord(id="m1", text="copper kettle", salience=0.9, created_at=100)
M2 = MemoryRecord(id="m2", text="green tea", created_at=200)
M3 = MemoryRecord(id="m3", text="bicycle oil", salience=1, created_at=50, kind="episode", tags=("garage",))


async def filled(*records: MemoryRecord) -> InProcessMemory:
    store = InProcessMemory()
    for record in records:
        await store.remember(record)
    return store


async def ids(store: InProcessMemory, **query: object) -> list[str]:
    return [record.id for record in await store.recall(MemoryQuery(**query))]  # type: ignore[arg-type]


@pytest.mark.parametrize("order", list(itertools.permutations((M1, M2, M3))))
async def test_v150_without_words_what_matters_most_comes_first(order: tuple[MemoryRecord, ...]) -> None:
    store = await filled(*order)
    assert await ids(store, limit=3) == ["m3", "m1", "m2"]
    assert await ids(store, text="  ", limit=2) == ["m3", "m1"]


async def test_v150_words_filters_and_overwriting() -> None:
    store = await filled(M1, M2, M3)
    assert await ids(store, text="kettle tea") == ["m1", "m2"]
    assert await ids(store, text="submarine") == []
    assert await ids(store, kinds=("episode",)) == ["m3"]
    assert await ids(store, tags=("garage", "x")) == ["m3"]
    assert await ids(store, text="oil", kinds=("fact",)) == []
    await store.remember(MemoryRecord(id="m1", text="iron pan"))
    assert await ids(store, text="kettle") == []
    assert [record.id for record in await store.all()] == ["m1", "m2", "m3"]


async def test_w35_salience_then_age_decide_between_equal_matches() -> None:
    records = [
        MemoryRecord(id="a", text="tea time", created_at=1),
        MemoryRecord(id="b", text="tea time", created_at=2),
        MemoryRecord(id="c", text="tea time", created_at=0, salience=0.5),
    ]
    store = await filled(*records)
    assert await ids(store, text="tea", limit=2) == ["c", "b"]
    assert await ids(store, text="tea", kinds=("fact",)) == ["c", "b", "a"]


# ----------------------------------------------------------------------------------- trust


@pytest.mark.parametrize("trust", ["model", "tool", "import"])
def test_u17_only_developers_and_persons_give_instructions(trust: str) -> None:
    with pytest.raises(ValueError, match="may not give instructions"):
        MemoryRecord(id="i", text="send mail", kind="instruction", trust=trust)  # type: ignore[arg-type]
    MemoryRecord(id="i", text="send no mail", kind="instruction", trust="person")


@pytest.mark.parametrize("salience", [-0.1, 1.1, float("nan")])
def test_salience_is_a_share(salience: float) -> None:
    with pytest.raises(ValueError, match="salience"):
        MemoryRecord(id="s", text="x", salience=salience)


async def test_u17_what_is_made_from_others_is_trusted_as_the_least_of_them() -> None:
    store = await filled(
        MemoryRecord(id="dev", text="a", trust="developer"), MemoryRecord(id="tool", text="b", trust="tool")
    )
    joined = MemoryRecord(id="both", text="a b", trust="developer", derived_from=("dev", "tool"))
    assert (await store.remember(joined)).trust == "tool"
    lost = MemoryRecord(id="lost", text="a", trust="developer", derived_from=("gone",))
    assert (await store.remember(lost)).trust == "import"
    order = MemoryRecord(id="order", text="a", trust="developer", kind="instruction", derived_from=("tool",))
    with pytest.raises(ValueError, match="may not give instructions"):
        await store.remember(order)
    assert [record.id for record in await store.all()] == ["both", "dev", "lost", "tool"]


async def test_u17_the_less_trusted_do_not_replace_what_the_more_trusted_wrote() -> None:
    store = await filled(MemoryRecord(id="rule", text="no mail", kind="instruction", trust="person"))
    with pytest.raises(ValueError, match="written by a person"):
        await store.remember(MemoryRecord(id="rule", text="mail everybody", trust="model"))
    assert [record.text for record in await store.all()] == ["no mail"]


def test_the_least_trusted_of_none_is_what_was_imported() -> None:
    assert lowest_trust([]) == "import"
    assert lowest_trust(["developer", "model", "person"]) == "model"
