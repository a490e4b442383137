"""The vectors of the packer, its rules and its refusals."""

from __future__ import annotations

import pytest

from agentloop.context.packer import ContextBudget
from agentloop.context.sections import Block, Item
from agentloop.context.tokens import HEURISTIC, PIECEWISE, CountedTexts, tokenizer_from
from agentloop.messages import Message, ToolCall
from tests.agentloop.context.packing import CHARS, contents, note, packed, refused, rows, section, texts


def test_v107_the_reserve_is_not_given_away() -> None:
    window = packed([section(size=10, count=20)], 100, reserve_for_output=40)
    assert (window.report.usable, window.tokens) == (60, 60)
    assert (rows(window)["s"].items_included, window.report.dropped_items) == (6, 14)


def test_v108_an_inexact_tokenizer_keeps_a_margin() -> None:
    window = packed([section(size=4, count=200)], 1000, safety_margin=0.1, tokenizer=HEURISTIC)
    assert (window.report.usable, window.report.used, window.report.exact) == (900, 200, False)


def test_v109_an_exact_tokenizer_needs_no_margin() -> None:
    window = packed([section(size=10, count=1)], 500, safety_margin=0.5)
    assert (window.report.usable, window.report.safety_margin) == (500, 0)


@pytest.mark.parametrize(
    ("total", "reserve", "usable"), [(1000, 0, 920), (128000, 4000, 114080), (8000, 1000, 6440)]
)
def test_v110_the_default_margin(total: int, reserve: int, usable: int) -> None:
    window = packed([], total, reserve_for_output=reserve, tokenizer=HEURISTIC)
    assert window.report.usable == usable


def test_v110_no_space() -> None:
    error = refused([], 1, tokenizer=HEURISTIC)
    assert (error.error_class, error.code) == ("fatal", "context.no_space")
    assert error.detail == {"total": 1, "reserveForOutput": 0, "margin": 0.08}
    assert refused([], 100, reserve_for_output=100).code == "context.no_space"


def test_v111_what_is_pinned_goes_first_whatever_its_priority() -> None:
    sections = [
        section("p", size=30, count=1, priority=5, pinned=True),
        section(size=10, count=20, priority=0),
    ]
    window = packed(sections, 100)
    assert rows(window)["p"].used == 30
    assert (rows(window)["s"].allocated, rows(window)["s"].items_included) == (70, 7)
    assert window.report.remaining == 0


def test_v112_pinned_sections_that_do_not_fit_are_named() -> None:
    error = refused([section("p", size=200, count=1, pinned=True)], 100)
    assert (error.error_class, error.code) == ("fatal", "context.pinned_overflow")
    assert error.detail == {"required": 200, "usable": 100, "sections": [{"id": "p", "tokens": 200}]}


def test_v113_slack_gives_one_item_more() -> None:
    sections = [section("a", size=10, count=20, max_share=0.25), section("b", size=10, count=20, priority=2)]
    window = packed(sections, 100)
    assert (rows(window)["a"].used, rows(window)["b"].used, window.tokens) == (30, 70, 100)
    assert (rows(window)["a"].allocated, rows(window)["a"].slack_given) == (30, 5)


def test_v114_what_caps_leave_over_is_handed_out_again() -> None:
    sections = [section("a", size=10, count=20, max_share=0.25), section("b", size=10, count=1, priority=2)]
    window = packed(sections, 100)
    assert (rows(window)["a"].allocated, rows(window)["b"].allocated, window.report.remaining) == (90, 10, 0)


def test_v115_priority_decides_who_is_squeezed() -> None:
    sections = [
        section("important", size=10, count=8, priority=0),
        section("optional", size=10, count=8, priority=9),
    ]
    window = packed(sections, 100)
    assert [row.items_included for row in window.report.sections] == [8, 2]
    assert rows(window)["optional"].items_dropped == 6


def test_v116_caps_are_shares_of_what_is_left() -> None:
    sections = [section(f"p{n}", size=10, count=20, priority=n, max_share=0.5) for n in range(3)]
    window = packed(sections, 100)
    assert [row.allocated - row.slack_given for row in window.report.sections] == [63, 25, 12]
    assert window.tokens == 100


def test_v117_a_section_below_its_floor_is_left_out() -> None:
    sections = [
        section("hog", size=10, count=9, priority=0),
        section("needs-room", size=10, count=5, min_tokens=50),
    ]
    window = packed(sections, 100)
    row = rows(window)["needs-room"]
    assert (row.allocated, row.used, row.starved, window.tokens) == (0, 0, True, 90)


def test_v118_a_small_section_is_not_below_its_floor() -> None:
    window = packed([section(size=10, count=3, min_tokens=50)], 1000)
    assert (rows(window)["s"].items_included, rows(window)["s"].used) == (3, 30)


def test_v119_what_a_floor_frees_is_handed_on() -> None:
    sections = [
        section("a", size=10, count=10, max_share=0.3, min_tokens=50),
        section("b", size=10, count=20, priority=2),
    ]
    window = packed(sections, 100)
    assert (rows(window)["a"].allocated, rows(window)["b"].allocated, window.tokens) == (0, 100, 100)


def test_v120_what_does_not_fit_is_passed_over() -> None:
    window = packed([section(items=texts("a" * 80, "b" * 5))], 50)
    assert (contents(window), window.tokens) == (["b" * 5], 5)


def test_v121_what_does_not_fit_is_cut_and_nothing_follows() -> None:
    window = packed([section(items=texts("a" * 80, "b"), overflow="truncate")], 50)
    assert (contents(window), window.tokens) == (["a" * 50], 50)
    assert (rows(window)["s"].items_truncated, rows(window)["s"].items_dropped) == (1, 1)


def test_v122_a_block_is_one_message_with_header_and_note() -> None:
    squeezed = section(size=20, count=5, block=Block(header="Context:"), elision_note=note("omitted"))
    window = packed([squeezed], 60)
    assert contents(window) == [f"Context:\n\n{'x' * 20}\n\n(4 omitted)"]
    assert (rows(window)["s"].used, rows(window)["s"].note_shown) == (43, True)


@pytest.mark.parametrize(
    ("total", "shown", "used"),
    [
        (60, ["(3 elided)", "x" * 20, "x" * 20], 50),
        (30, ["(4 elided)", "x" * 20], 30),
        (25, ["(5 elided)"], 10),
    ],
)
def test_v123_a_note_comes_first_and_stays_alone_if_need_be(total: int, shown: list[str], used: int) -> None:
    window = packed([section(size=20, count=5, elision_note=note("elided"))], total)
    assert (contents(window), window.tokens) == (shown, used)


def test_v124_order_decides_where_priority_decides_whether() -> None:
    def sections(orders: tuple[float | None, float | None]) -> list[str]:
        both = [
            section("a", items=texts("AAA"), priority=0, order=orders[0]),
            section("b", items=texts("BBB"), priority=9, order=orders[1]),
        ]
        return contents(packed(both, 100))

    assert sections((9, 0)) == ["BBB", "AAA"]
    assert sections((None, None)) == ["AAA", "BBB"]


def test_v125_slack_between_two_sections() -> None:
    sections = [section("a", size=9, count=12, max_share=0.4), section("b", size=6, count=12, priority=2)]
    window = packed(sections, 120, reserve_for_output=10)
    assert [row.used for row in window.report.sections] == [36, 72]
    assert [row.allocated - row.slack_given for row in window.report.sections] == [44, 66]
    assert window.tokens == 108


def test_v126_w27_separators_are_charged() -> None:
    pinned = section(size=5, count=2, pinned=True, block=Block())
    assert refused([pinned], 10).detail["required"] == 12
    window = packed([pinned], 12)
    assert (window.tokens, rows(window)["s"].allocated) == (12, 12)


def test_v127_w27_a_block_and_messages_fill_the_window_exactly() -> None:
    sections = [
        section("block", size=5, count=6, block=Block(header="Context:")),
        section("s", size=5, count=40, priority=2),
    ]
    window = packed(sections, 100)
    assert ([row.allocated for row in window.report.sections], window.tokens) == ([50, 50], 100)


def _call(id: str = "c1", query: str = "abc") -> ToolCall:
    return ToolCall(id=id, name="ask", arguments={"query": query, "k": 1})


def test_v128_w28_calls_are_charged_and_never_cut() -> None:
    asks = Message(role="assistant", content="ok", tool_calls=(_call(),))
    item = Item(id="m", message=asks)
    window = packed([section(items=[item])], 100)
    assert rows(window)["s"].requested == rows(window)["s"].used == 29
    squeezed = packed([section(items=[item], overflow="truncate")], 12)
    assert (squeezed.messages, rows(squeezed)["s"].starved) == ((), True)


def test_v129_w30_the_latest_turn_is_kept_and_the_early_one_cut() -> None:
    items = texts("e" * 500, "latest turn")
    window = packed([section(items=items, overflow="truncate", fill="last")], 100)
    assert (contents(window), window.tokens) == (["e" * 89, "latest turn"], 100)


def test_v130_w30_of_a_history_the_newest_part_is_kept() -> None:
    items = texts(*[f"m{n}" + "." * 18 for n in range(6)])
    window = packed([section(items=items, fill="last", elision_note=note("earlier"))], 80)
    assert [text[:2] for text in contents(window)] == ["(3", "m3", "m4", "m5"]
    assert window.tokens == 71


def test_v131_w34_two_sections_of_one_name_are_refused() -> None:
    error = refused([section("a"), section("b"), section("a")], 100)
    assert (error.code, error.detail) == ("context.duplicate_section", {"id": "a"})


def test_v132_w34_an_empty_item_is_shown() -> None:
    window = packed([section(items=texts(""), pinned=True)], 100)
    row = rows(window)["s"]
    assert (row.items_included, row.starved, contents(window)) == (1, False, [""])


def test_v133_no_sections_no_messages() -> None:
    window = packed([], 100)
    assert (window.messages, window.tokens) == ((), 0)


def test_v134_the_same_input_gives_the_same_window() -> None:
    sections = [section("a", size=9, count=12, max_share=0.4), section("b", size=6, count=12, priority=2)]
    assert packed(sections, 90) == packed(list(reversed(sections)), 90)


def test_v135_a_sweep_never_uses_more_than_there_is() -> None:
    sections = [
        section("pinned", size=5, count=1, priority=0, pinned=True),
        section("a", size=13, count=9, priority=1, max_share=0.5, overflow="truncate"),
        section("b", size=7, count=15, priority=2, max_share=0.3),
        section("c", size=11, count=6, priority=3, min_tokens=20),
    ]
    used = {}
    for total in range(20, 401, 7):
        window = packed(sections, total, reserve_for_output=5)
        assert window.tokens == sum(row.used for row in window.report.sections) <= window.report.usable
        used[total] = window.tokens
    assert {total: used[total] for total in (20, 62, 104, 398)} == {20: 15, 62: 57, 104: 99, 398: 293}


# ----------------------------------------------------------------------------------- rules


def _turn(number: int, *results: str) -> list[Item]:
    calls = tuple(_call(f"c{number}.{index}") for index in range(len(results)))
    messages = [Message(role="assistant", content=f"turn {number}", tool_calls=calls)]
    messages += [
        Message(role="tool", call_id=call.id, name="search", content=text)
        for call, text in zip(calls, results, strict=True)
    ]
    return [Item(id=f"{number}.{index}", message=message) for index, message in enumerate(messages)]


def test_w31_a_call_and_its_results_are_kept_or_dropped_together() -> None:
    items = [*_turn(1, "r" * 50, "r" * 50), *_turn(2, "r" * 10)]
    window = packed([section(items=items, fill="last")], 100)
    assert [message.role for message in window.messages] == ["assistant", "tool"]
    assert window.messages[0].content == "turn 2"


def test_an_answer_to_no_call_stands_alone() -> None:
    orphan = Item(id="o", message=Message(role="tool", call_id="gone", name="x", content="r" * 10))
    window = packed([section(items=[orphan, *_turn(1, "r" * 500)])], 100)
    assert [message.call_id for message in window.messages] == ["gone"]


def test_within_a_group_the_longest_result_is_cut_first() -> None:
    items = _turn(1, "a" * 20, "b" * 400)
    window = packed([section(items=items, overflow="truncate", cut_marker=" [cut]")], 150)
    first, second, third = window.messages
    assert first.tool_calls == items[0].message.tool_calls
    assert second.content == "a" * 20
    assert third.content.startswith("bbb")
    assert third.content.endswith(" [cut]")
    assert window.tokens == 150


def test_a_second_result_is_cut_when_one_is_not_enough() -> None:
    items = _turn(1, "a" * 300, "b" * 400)
    window = packed([section(items=items, overflow="truncate", cut_marker="~")], 150)
    assert window.messages[2].content == "~"
    assert window.messages[1].content.endswith("a~")
    assert (window.tokens, rows(window)["s"].items_truncated) == (150, 2)


def test_a_group_whose_calls_alone_do_not_fit_is_dropped() -> None:
    window = packed([section(items=_turn(1, "a" * 300), overflow="truncate")], 30)
    assert window.messages == ()


def test_w29_floors_are_not_undone_by_slack() -> None:
    sections = [section("a", size=30, count=3), section("b", size=10, count=9, priority=2, min_tokens=40)]
    window = packed(sections, 100)
    assert (rows(window)["b"].allocated, rows(window)["b"].slack_given) == (0, 0)


@pytest.mark.parametrize("options", [{"max_share": 1.5}, {"max_share": -0.1}, {"min_tokens": -1}])
def test_p11_shares_and_floors_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    error = refused([section("a"), section("b", size=1, count=1, **options)], 100)
    assert (error.code, error.detail) == ("config.invalid", {"section": "b"})


@pytest.mark.parametrize(
    "options",
    [
        {"total": 0},
        {"total": 10, "reserve_for_output": -1},
        {"total": 10, "safety_margin": 1.0},
        {"total": 10, "shrink": 0.0},
    ],
)
def test_a_budget_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        ContextBudget(**options)  # type: ignore[arg-type]


def test_w11_a_window_that_was_too_long_is_made_smaller() -> None:
    window = packed([section(size=10, count=20)], 100, shrink=0.85)
    assert (window.report.usable, window.tokens) == (85, 80)


def test_a_tokenizer_that_knows_messages_charges_them_whole() -> None:
    class PerMessage:
        name, exact = "per-message", True

        def count(self, text: str) -> int:
            return len(text)

        def truncate(self, text: str, max_tokens: int) -> str:
            return text[: max(0, max_tokens)]

        def count_message(self, message: Message) -> int:
            return len(message.content) + 4

    counts = CountedTexts(PerMessage())
    for _ in range(2):
        window = packed([section(size=10, count=20)], 100, tokenizer=counts)  # type: ignore[arg-type]
        assert (window.tokens, len(window.messages)) == (98, 7)
    assert counts.counted == 1


def test_blocks_cost_the_same_whether_counted_by_paragraph_or_whole() -> None:
    words = ["Fresh water", "salt\nwater", "ice, 3 kg", "steam " * 9, "fog"] * 4
    whole = tokenizer_from("whole", PIECEWISE.count, exact=False)
    for total in range(40, 260, 7):
        squeezed = section(
            items=texts(*words), block=Block(header="Known:", footer="end"), elision_note=note("left out")
        )
        quick, slow = (
            packed([squeezed], total, tokenizer=PIECEWISE),
            packed([squeezed], total, tokenizer=whole),
        )
        assert (quick.messages, quick.tokens) == (slow.messages, slow.tokens)


def test_texts_that_stay_are_counted_once() -> None:
    counts = CountedTexts(CHARS)
    sections = [section(f"s{n}", items=texts(*[f"{n}.{m}" for m in range(5)]), priority=n) for n in range(9)]
    first = packed(sections, 90, tokenizer=counts)  # type: ignore[arg-type]
    asked = counts.counted
    assert packed(sections, 90, tokenizer=counts) == first  # type: ignore[arg-type]
    assert counts.counted == asked == 45


def test_with_a_tokenizer_that_charges_less_for_more_the_share_is_still_kept() -> None:
    fickle = tokenizer_from("fickle", lambda text: 1 if "(9 left out)" in text else len(text))
    squeezed = section(size=5, count=9, block=Block(), elision_note=note("left out"))
    window = packed([squeezed], 25, tokenizer=fickle)
    assert window.tokens <= 25
    assert rows(window)["s"].items_included < 9
