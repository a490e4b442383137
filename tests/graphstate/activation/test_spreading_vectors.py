"""Vectors V41 to V48: what spreads over edges; and the sum over walks against all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate.activation.spreading import FRONTIER, Link, Spread, spread

Links = Callable[[Collection[str]], Iterable[Link]]

CHAIN = [Link("ai", "v"), Link("v", "p"), Link("p", "n")]
DIAMOND = [Link("s", "a"), Link("s", "b"), Link("a", "t"), Link("b", "t")]


def over(links: Sequence[Link]) -> Links:
    return lambda sources: [link for link in links if link.source in sources]


def reached(links: Sequence[Link], *seeds: str, **options: Any) -> dict[str, float]:
    return dict(spread(dict.fromkeys(seeds, 1.0), over(links), **options).reached)


def test_v41_a_step_halves_and_depth_ends_the_walk() -> None:
    assert reached(CHAIN, "ai", depth=2, decay=0.5) == {"v": 0.5, "p": 0.25}
    assert reached(CHAIN, "ai", depth=5, decay=0.5)["n"] == 0.125


@pytest.mark.parametrize(
    ("beta", "each", "both"), [(0, 0.5, 0.5), (1, 0.25, 0.25), (0.5, 0.353553, 0.353553)]
)
def test_v43_two_ways_to_a_node_add_up(beta: float, each: float, both: float) -> None:
    found = reached(DIAMOND, "s", fan_beta=beta)
    assert found == pytest.approx({"a": each, "b": each, "t": both}, abs=1e-6)


def test_v44_parallel_edges_count_once_and_the_strongest_does() -> None:
    assert reached([Link("s", "a"), Link("s", "a")], "s") == {"a": 0.5}
    assert reached([Link("s", "a", 0.2), Link("s", "a", 0.8), Link("s", "a", 0.4)], "s") == {"a": 0.4}


def test_v45_a_seed_gets_nothing_and_passes_on_what_reaches_it() -> None:
    assert reached(DIAMOND, "s", "a", depth=1, fan_beta=0) == {"b": 0.5, "t": 0.5}
    assert reached(DIAMOND, "s", "a", depth=2, fan_beta=0) == {"b": 0.5, "t": 1.0}


def test_v46_nothing_spreads_from_nothing_and_an_amplifying_step_is_refused() -> None:
    assert reached(DIAMOND, "s", depth=0) == {}
    assert reached(DIAMOND, "ghost") == {}
    assert spread({}, over(DIAMOND)) == Spread({})
    for wrong in ({"decay": 1.5}, {"decay": -0.1}, {"decay": float("nan")}, {"depth": 9}, {"depth": -1}):
        with pytest.raises(ValueError, match="must be 0 to"):
            reached(DIAMOND, "s", **wrong)


def test_v47_a_circle_ends_with_the_depth() -> None:
    circle = [Link("s", "a"), Link("a", "s"), Link("a", "b")]
    assert reached(circle, "s", depth=3, fan_beta=0) == {"a": 0.625, "b": 0.25}


@pytest.mark.parametrize(("beta", "each"), [(0, 0.5), (1, 0.005), (0.5, 0.05)])
def test_v48_a_hub_divides_what_it_passes_on(beta: float, each: float) -> None:
    hub = [Link("hub", f"n{i}") for i in range(100)]
    found = reached(hub, "hub", depth=1, fan_beta=beta)
    assert len(found) == 100
    assert found["n7"] == pytest.approx(each)


def test_seeds_bring_their_own_strength() -> None:
    assert spread({"s": 0.4}, over(DIAMOND), depth=1, fan_beta=0).reached == {"a": 0.2, "b": 0.2}


def test_what_is_too_weak_is_kept_and_not_passed_on() -> None:
    assert reached(CHAIN, "ai", depth=5, decay=0.01) == pytest.approx({"v": 0.01, "p": 1e-4, "n": 1e-6})
    assert set(reached(CHAIN, "ai", depth=5, decay=0.009)) == {"v", "p"}


def test_a_level_keeps_its_strongest_nodes_and_says_that_others_are_missing() -> None:
    wide = [Link("s", f"n{i}", 1 - i / 100) for i in range(20)]
    found = spread({"s": 1.0}, over(wide), depth=1, frontier=5)
    assert set(found.reached) == {f"n{i}" for i in range(5)}
    assert found.truncated
    assert not spread({"s": 1.0}, over(wide), depth=1, frontier=20).truncated
    assert FRONTIER == 5_000


def test_each_level_is_asked_for_its_links_once() -> None:
    asked: list[list[str]] = []

    def links(sources: Collection[str]) -> list[Link]:
        asked.append(sorted(sources))
        return [link for link in DIAMOND if link.source in sources]

    spread({"s": 1.0}, links, depth=3)
    assert asked == [["s"], ["a", "b"], ["t"]]


# ------------------------------------------------------------------------------ all walks

NAMES = [f"n{i}" for i in range(6)]
LINKS = st.lists(
    st.builds(Link, st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([0.25, 0.5, 1.0])),
    max_size=14,
)
SEEDS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.5, 1.0]), min_size=1, max_size=3)


def walked(
    links: Sequence[Link], seeds: dict[str, float], depth: int, decay: float, beta: float
) -> dict[str, float]:
    """Add up every single walk."""
    strongest: dict[str, dict[str, float]] = {}
    for source, target, strength in links:
        targets = strongest.setdefault(source, {})
        targets[target] = max(targets.get(target, 0.0), strength)
    total: dict[str, float] = {}

    def walk(at: str, value: float, left: int) -> None:
        targets = strongest.get(at, {})
        for target, strength in targets.items() if left else ():
            arrived = value * decay * strength / len(targets) ** beta
            if target not in seeds:
                total[target] = total.get(target, 0.0) + arrived
            walk(target, arrived, left - 1)

    for seed, strength in seeds.items():
        walk(seed, strength, depth)
    return total


@given(LINKS, SEEDS, st.integers(0, 4), st.sampled_from([0.3, 0.5, 1.0]), st.sampled_from([0, 0.5, 1]))
@settings(max_examples=150, deadline=None)
def test_the_levels_add_up_to_all_walks(
    links: list[Link], seeds: dict[str, float], depth: int, decay: float, beta: float
) -> None:
    found = spread(seeds, over(links), depth=depth, decay=decay, fan_beta=beta, floor=0.0)
    assert found.reached == pytest.approx(walked(links, seeds, depth, decay, beta), abs=1e-12)


@given(LINKS, SEEDS, st.randoms())
@settings(max_examples=100, deadline=None)
def test_the_order_of_links_and_seeds_changes_no_bit(
    links: list[Link], seeds: dict[str, float], random: Random
) -> None:
    shuffled, turned = links[:], list(seeds.items())
    random.shuffle(shuffled)
    random.shuffle(turned)
    assert (
        spread(dict(turned), over(shuffled), depth=4).reached == spread(seeds, over(links), depth=4).reached
    )
