"""Clocks, ids, random numbers and digests: the same everywhere, on both backends."""

from __future__ import annotations

import datetime
import math
import time
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from agentloop import InvariantViolation, ManualClock, Mulberry32, SequentialIds, digest, is_json_value
from agentloop._canonical import encode_text


def drawn(seed: int | str, numbers: int) -> list[float]:
    rng = Mulberry32(seed)
    return [rng.next() for _ in range(numbers)]


# ------------------------------------------------------------------------------- randomness


def test_v001_the_numbers_of_seed_0() -> None:
    assert drawn(0, 3) == [0.26642920868471265, 0.0003297457005828619, 0.2232720274478197]


def test_v002_numbers_as_seeds() -> None:
    assert drawn(1, 1) == [0.6270739405881613]
    assert drawn(42, 2) == [0.6011037519201636, 0.44829055899754167]
    assert drawn(-1, 1) == [0.8964226141106337]
    assert drawn(2**32 + 1, 5) == drawn(1, 5)


def test_v003_texts_as_seeds() -> None:
    assert f"{Mulberry32('a').state:08x}" == "e40c292c"
    assert drawn("a", 1) == [0.621685681398958]
    assert drawn("test", 3) == [0.7171058997046202, 0.3465085106436163, 0.26757614384405315]
    assert drawn("", 1) == [0.6112444521859288]


def test_v004_whole_numbers() -> None:
    rng = Mulberry32("ints")
    assert [rng.int(3, 7) for _ in range(12)] == [7, 3, 3, 4, 4, 5, 7, 6, 3, 3, 6, 5]
    assert {rng.int(3, 7) for _ in range(2000)} == {3, 4, 5, 6, 7}


def test_v005_shuffles() -> None:
    letters = ["a", "b", "c", "d", "e", "f"]
    assert Mulberry32(42).shuffle(letters) == ["b", "a", "e", "f", "c", "d"]
    assert letters == ["a", "b", "c", "d", "e", "f"]
    assert Mulberry32("test").shuffle([1, 2, 3, 4, 5]) == [5, 3, 1, 2, 4]


def test_v006_numbers_stay_below_one() -> None:
    assert all(0 <= number < 1 for number in drawn(7, 5000))


# --------------------------------------------------------------------------------------- ids


def test_v007_ids_count_by_prefix() -> None:
    ids = SequentialIds()
    made = [ids.next(prefix) for prefix in ("step", "step", "call", "step")]
    assert made == ["step-0001", "step-0002", "call-0001", "step-0003"]
    assert [ids.count(prefix) for prefix in ("step", "call", "other")] == [3, 1, 0]
    with pytest.raises(InvariantViolation):
        ids.next("")
    assert ids.count("") == 0


# ------------------------------------------------------------------------------------- clock


def test_v008_a_manual_clock_stands_still() -> None:
    clock = ManualClock(1000)
    assert [clock.now_ms(), clock.now_ms(), clock.monotonic_ms()] == [1000, 1000, 1000]


@pytest.mark.anyio
async def test_v008_a_long_sleep_takes_no_time() -> None:
    clock = ManualClock()
    await clock.sleep_ms(30_000_000)  # would be a night
    assert clock.now_ms() == 30_000_000
    clock = ManualClock(500)
    await clock.sleep_ms(-100)
    assert clock.now_ms() == 500


@pytest.mark.anyio
async def test_w20_overlapping_sleeps_overlap() -> None:
    clock = ManualClock()
    woken: list[tuple[int, int]] = []

    async def sleep(duration_ms: int) -> None:
        await clock.sleep_ms(duration_ms)
        woken.append((duration_ms, clock.now_ms()))

    async with anyio.create_task_group() as tasks:
        for duration_ms in (100, 1, 50, 100):
            tasks.start_soon(sleep, duration_ms)
    assert woken == [(1, 1), (50, 50), (100, 100), (100, 100)]


@pytest.mark.anyio
async def test_sleepers_of_one_moment_go_on_one_by_one() -> None:
    clock, woken = ManualClock(), list[int]()

    async def sleep(number: int) -> None:
        await clock.sleep_until(7)
        for _ in range(3):
            woken.append(number)
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(sleep, number)
    assert [woken[3 * place] for place in range(4)] == [woken[3 * place + 2] for place in range(4)]
    assert (sorted({*woken}), clock.now_ms()) == ([0, 1, 2, 3], 7)


@pytest.mark.anyio
async def test_time_waits_for_work() -> None:
    clock, seen = ManualClock(), list[int]()

    async def work() -> None:
        for _ in range(200):
            await checkpoint()
        seen.append(clock.now_ms())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await clock.sleep_ms(5)
    assert (seen, clock.now_ms()) == ([0], 5)


@pytest.mark.anyio
async def test_a_cancelled_sleeper_hands_the_watch_over() -> None:
    clock, woken = ManualClock(), list[int]()

    async def sleep(duration_ms: int, scope: anyio.CancelScope) -> None:
        with scope:
            await clock.sleep_ms(duration_ms)
            woken.append(clock.now_ms())

    scopes = [anyio.CancelScope() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for number, scope in enumerate(scopes):
            tasks.start_soon(sleep, 10 + number, scope)
        await checkpoint()
        scopes[0].cancel()
    assert woken == [11, 12]
    assert clock.now_ms() == 12


@pytest.mark.anyio
async def test_a_held_clock_does_not_jump() -> None:
    clock = ManualClock()

    async def work() -> None:
        with clock.held():
            await anyio.to_thread.run_sync(time.sleep, 0.02)
            assert clock.now_ms() == 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await checkpoint()
        await clock.sleep_ms(5)
    assert clock.now_ms() == 5


@pytest.mark.anyio
async def test_advance_wakes_who_is_due() -> None:
    clock, woken = ManualClock(), list[int]()

    async def sleep(deadline_ms: int) -> None:
        await clock.sleep_until(deadline_ms)
        woken.append(deadline_ms)

    async with anyio.create_task_group() as tasks:
        with clock.held():
            for deadline_ms in (3, 1, 9):
                tasks.start_soon(sleep, deadline_ms)
            await anyio.wait_all_tasks_blocked()
            clock.advance(4)
            await anyio.wait_all_tasks_blocked()
            assert (sorted(woken), clock.now_ms()) == ([1, 3], 4)
    assert clock.now_ms() == 9


@pytest.mark.anyio
async def test_clocks_of_one_event_loop_look_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = 0, anyio.wait_all_tasks_blocked

    async def counted() -> None:
        nonlocal looks
        looks += 1
        await look()

    monkeypatch.setattr(anyio, "wait_all_tasks_blocked", counted)
    clocks = [ManualClock() for _ in range(5)]

    async def sleep(clock: ManualClock, late: int) -> None:
        for _ in range(late):
            await checkpoint()
        await clock.sleep_ms(10 + late)

    async with anyio.create_task_group() as tasks:
        for late, clock in enumerate(clocks):
            tasks.start_soon(sleep, clock, late)
    assert ([clock.now_ms() for clock in clocks], looks) == ([10, 11, 12, 13, 14], 1)


@pytest.mark.anyio
async def test_a_clock_that_is_given_up_while_it_looks_out_leaves_the_others_to_it() -> None:
    first, second = ManualClock(), ManualClock()
    given_up = anyio.CancelScope()

    async def sleep_in_vain() -> None:
        with given_up:
            await first.sleep_ms(5)

    async def give_up() -> None:
        for _ in range(5):
            await checkpoint()
        given_up.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep_in_vain)
        tasks.start_soon(give_up)
        await checkpoint()
        await second.sleep_ms(7)
    assert (first.now_ms(), second.now_ms()) == (0, 7)


# ----------------------------------------------------------------------------------- digests


def test_v009_the_order_of_keys_does_not_matter() -> None:
    value = {"b": 1, "a": 2, "c": {"z": 3, "y": 4}}
    assert encode_text(value) == '{"a":2,"b":1,"c":{"y":4,"z":3}}'
    assert digest(value) == digest({"c": {"y": 4, "z": 3}, "a": 2, "b": 1}) == "bdd5e1a4"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"hello": "world"}, "b5ccb6bb"),
        ([1, 2, 3], "e0f965d9"),
        ([3, 2, 1], "70cb17d9"),
        ({}, "5465b825"),
        ([], "741638a5"),
        (None, "77074ba4"),
        (True, "4db211e5"),
        ("", "ffcaaa85"),
        ("a", "61a1cfea"),
        (0, "350ca8af"),
        (-0.0, "350ca8af"),
        (1.5, "e8421739"),
        (1e21, "b6a7b1f5"),
        ({"k": "é"}, "5bbfed71"),
        ({"a": [1, 2, {"b": None}]}, "ca1c557e"),
        ("é", "507809f2"),
        ("\U0001f600", "accb0e0e"),
    ],
)
def test_v010_digests(value: Any, expected: str) -> None:
    assert digest(value) == expected


def test_v011_keys_sort_by_utf16_units() -> None:
    value = {"\uffff": 2, "\U0001f600": 1}
    assert encode_text(value) == '{"\U0001f600":1,"\uffff":2}'
    assert digest(value) == "ed532f8a"


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        ({"a": [1, "two", None, True]}, True),
        ((1, 2.5), True),
        (math.nan, False),
        (math.inf, False),
        (datetime.date(2026, 1, 1), False),
        (print, False),
        ({1, 2}, False),
        ({1: 2}, False),
        ({"nested": {"bad": object()}}, False),
    ],
)
def test_v012_what_is_json(value: object, is_json: bool) -> None:
    assert is_json_value(value) is is_json
