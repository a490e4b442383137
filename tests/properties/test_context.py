"""Laws of the window: nothing costs more than it was given, nothing that belongs together is parted."""

from __future__ import annotations

import anyio
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context.bm25 import Bm25Index, Document
from agentloop.context.boundaries import mark_for
from agentloop.context.memory import InProcessMemory, MemoryQuery, MemoryRecord
from agentloop.context.packer import ContextBudget, Packed, pack
from agentloop.context.sections import Item, Section, groups_of
from agentloop.context.tokens import HEURISTIC, PIECEWISE, Tokenizer, tokenizer_from
from agentloop.messages import Message
from agentloop.outcome import Err, Ok
from tests.strategies import context_sections, conversations

CHARS = tokenizer_from("chars", len)
TOKENIZERS = st.sampled_from([CHARS, HEURISTIC, PIECEWISE])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def window(sections: list[Section], total: int, tokenizer: Tokenizer = CHARS) -> Packed | None:
    answer = pack(sections, ContextBudget(total=total), tokenizer)
    if isinstance(answer, Err):
        assert answer.error.code in ("context.no_space", "context.pinned_overflow")
        return None
    assert isinstance(answer, Ok)
    return answer.value


@given(context_sections(), st.integers(1, 400), TOKENIZERS)
def test_property_6_nothing_uses_more_than_it_was_given(
    sections: list[Section], total: int, tokenizer: Tokenizer
) -> None:
    packed = window(sections, total, tokenizer)
    if packed is None:
        return
    report, by_id = packed.report, {section.id: section for section in sections}
    assert packed.tokens == report.used == sum(row.used for row in report.sections) <= report.usable
    for row in report.sections:
        assert row.used <= row.allocated
        assert row.items_included + row.items_dropped == row.items_total == len(by_id[row.id].items)
        if row.pinned:
            assert (row.items_dropped, row.items_truncated, row.used) == (0, 0, row.requested)


@given(context_sections(), st.integers(1, 400), st.randoms(use_true_random=False))
def test_property_6_the_order_in_which_sections_come_does_not_matter(
    sections: list[Section], total: int, rng: object
) -> None:
    shuffled = sections[:]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert window(shuffled, total) == window(sections, total)


@given(context_sections(most=1, notes=False), st.integers(1, 200), st.integers(0, 200))
def test_property_6_a_single_section_never_shows_less_for_more_room(
    sections: list[Section], total: int, more: int
) -> None:
    small, large = window(sections, total), window(sections, total + more)
    assert (0 if small is None else small.tokens) <= (0 if large is None else large.tokens)


@given(
    conversations(),
    st.integers(1, 300),
    st.sampled_from(["drop", "truncate"]),
    st.sampled_from(["first", "last"]),
)
def test_property_6_groups_stay_whole_and_in_order(
    said: list[Message], total: int, overflow: str, fill: str
) -> None:
    items = [Item(id=str(number), message=message) for number, message in enumerate(said)]
    section = Section(id="s", priority=1, items=items, overflow=overflow, fill=fill)  # type: ignore[arg-type]
    packed = window([section], total)
    assert packed is not None
    shown = [int(name) for name in packed.included.get("s", ())]
    assert shown == sorted(shown)
    for group in groups_of(said):
        assert len(set(group) & set(shown)) in (0, len(group))
    for number, message in zip(shown, packed.messages, strict=True):
        assert message.tool_calls == said[number].tool_calls


@given(conversations())
def test_every_message_is_in_one_group(said: list[Message]) -> None:
    assert sorted(number for group in groups_of(said) for number in group) == list(range(len(said)))


@given(TEXTS, st.integers(-2, 30), TOKENIZERS)
def test_v106_property_7_a_cut_text_is_the_longest_prefix_that_fits(
    text: str, most: int, tokenizer: Tokenizer
) -> None:
    kept = tokenizer.truncate(text, most)
    assert text.startswith(kept)
    assert tokenizer.count(kept) <= max(0, most)
    if kept != text:
        assert tokenizer.count(text[: len(kept) + 1]) > most


@given(TEXTS)
def test_w37_the_piecewise_rule_is_monotone(text: str) -> None:
    counts = [PIECEWISE.count(text[:end]) for end in range(len(text) + 1)]
    assert counts == sorted(counts)


@given(TEXTS, TEXTS)
def test_the_piecewise_rule_may_be_added_up_line_by_line(one: str, other: str) -> None:
    parts = PIECEWISE.count(one) + PIECEWISE.count("\n") + PIECEWISE.count(other)
    assert PIECEWISE.count(f"{one}\n{other}") <= parts


# ------------------------------------------------------------------------------- retrieval

WORDS = st.lists(st.sampled_from(["tea", "oil", "pan", "cup", "pot"]), max_size=6).map(" ".join)
COLLECTIONS = st.dictionaries(st.sampled_from("abcdefgh"), WORDS, max_size=8)


@given(COLLECTIONS, WORDS, st.integers(0, 9), st.randoms(use_true_random=False))
def test_property_8_bm25_ranks_positive_scores_whatever_the_order(
    texts: dict[str, str], query: str, k: int, rng: object
) -> None:
    index, other = Bm25Index(), Bm25Index()
    names = list(texts)
    for name in names:
        index.add(Document(name, texts[name]))
    rng.shuffle(names)  # type: ignore[attr-defined]
    for name in names:
        other.add(Document(name, texts[name]))
    found = index.search(query, k)
    keys = [(-passage.score, passage.id) for passage in found]
    assert keys == sorted(keys)
    assert all(passage.score > 0 for passage in found)
    assert len(found) <= k
    assert found == index.search(query, 9)[:k]
    assert found == other.search(query, k)


@given(COLLECTIONS, WORDS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_property_8_what_is_recalled_does_not_depend_on_the_order_of_remembering(
    texts: dict[str, str], query: str, limit: int, rng: object
) -> None:
    async def recalled(names: list[str]) -> list[str]:
        store = InProcessMemory()
        for name in names:
            await store.remember(
                MemoryRecord(id=name, text=texts[name], salience=0.5 if name < "d" else None)
            )
        return [record.id for record in await store.recall(MemoryQuery(text=query, limit=limit))]

    names = list(texts)
    first = anyio.run(recalled, names)
    rng.shuffle(names)  # type: ignore[attr-defined]
    assert anyio.run(recalled, names) == first


@given(st.text(max_size=8), st.lists(TEXTS, max_size=4), st.integers(0, 3))
def test_u17_a_mark_occurs_in_no_text(run: str, texts: list[str], known: int) -> None:
    for _ in range(known):
        texts = [*texts, mark_for(run, texts)]
    mark = mark_for(run, texts)
    assert not any(mark in text for text in texts)
    assert mark == mark_for(run, texts)
