"""Vectors V125 to V127 and what else zones do: members, modes, derivation, deletion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Zone
from graphstate.events import GRAPH
from tests.graphstate.conftest import Make


def code(result: Any) -> str:
    assert isinstance(result, Fail), result
    assert result.hint
    return result.code


def chain(make: Make) -> Adaptogen:
    graph = make()
    for node in "abcd":
        graph.remember(node, payload={"safe": node != "d"}, tags=["safe"] if node in "bd" else [])
    for src, dst in ("ab", "bc", "cd"):
        graph.link(src, dst).unwrap()
    return graph


def derived(graph: Adaptogen, predicate: str | None = None) -> tuple[str, ...]:
    before = graph.store.head()
    found = graph.derive_zone("a", predicate).unwrap()
    assert (found.zone, graph.zones(), graph.store.head()) == (None, [], before)
    return found.members


def test_v125_a_zone_is_derived_from_what_can_be_reached(make: Make) -> None:
    graph = chain(make)
    assert derived(graph, "payload.safe == true") == ("a", "b", "c")
    assert derived(graph) == derived(graph, "") == ("a", "b", "c", "d")
    assert derived(graph, "tags has 'safe'") == ("b", "d")
    assert derived(graph, "toId == 'c' || fromId == toId") == ("a", "c")
    graph.archive("b")
    assert derived(graph) == ("a", "c", "d")


def test_v126_d32_the_predicate_has_the_names_of_a_guard_on_a_move(make: Make) -> None:
    graph = chain(make)
    assert derived(graph, "toTags has 'safe'") == ("b", "d")
    assert derived(graph, "to.safe == true && toKind == kind") == ("a", "b", "c")
    assert derived(graph, "stat.visits == 0 || exists edge.id || vars.x == 1") == ()


def test_deriving_refuses_what_it_cannot_answer(make: Make) -> None:
    graph = chain(make)
    before = graph.store.head()
    assert code(graph.derive_zone("x")) == "NotFound"
    assert code(graph.derive_zone("a", "  ")) == "GuardParseError"
    assert code(graph.derive_zone("a", 7)) == "GuardParseError"  # type: ignore[arg-type]
    assert code(graph.derive_zone("a", ratify=True)) == "InvalidInput"
    assert code(graph.derive_zone("a", ratify=True, name="z", intra="no")) == "InvalidInput"  # type: ignore[arg-type]
    assert graph.store.head() == before


def test_a_derived_zone_can_be_ratified_and_asked_for_again(make: Make) -> None:
    graph = chain(make)
    made = graph.derive_zone("a", "payload.safe == true", ratify=True, name="ok", intra="off", cause="c1")
    assert made.unwrap().zone == graph.zones()[0]
    assert graph.zones()[0].members == ("a", "b", "c")
    again = graph.derive_zone("a", "payload.safe == true", ratify=True, name="ok", intra="off", cause="c1")
    assert (again.unwrap(), again) == (made.unwrap(), again)
    assert [row.type for row in graph.store.read(GRAPH)].count("ZoneDefined") == 1
    assert code(graph.define_zone("other", ["a"], cause="c1")) == "Conflict"


def test_a_zone_is_derived_from_a_file_that_is_only_read(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", path=path)
    graph.close()
    reader = make(path=path, read_only=True)
    assert reader.derive_zone("a").unwrap().members == ("a",)
    assert code(reader.derive_zone("a", ratify=True, name="z")) == "ReadOnly"


def test_a_predicate_that_needs_too_much_work_is_refused(make: Make) -> None:
    graph = make()
    numbers = list(range(4_000))
    with graph.unit():
        for index in range(300):
            graph.remember(f"n{index}", payload={"a": numbers, "b": numbers})
            if index:
                graph.link("n0", f"n{index}").unwrap()
    refused = graph.derive_zone("n0", "payload.a != payload.b")
    assert code(refused) == "InvalidInput"
    assert "1,000,000 units" in refused.message  # type: ignore[union-attr]


def test_v127_what_a_zone_may_be_called_and_hold(make: Make) -> None:
    graph = make("a", "b")
    before = graph.store.head()
    assert code(graph.define_zone("no good", ["a"])) == "InvalidInput"
    assert code(graph.define_zone("z", ["x"])) == "NotFound"
    assert code(graph.define_zone("z", "ab")) == "InvalidInput"
    assert code(graph.add_to_zone("z", "a")) == "ZoneNotFound"
    assert code(graph.remove_from_zone("z", "a")) == "ZoneNotFound"
    assert code(graph.delete_zone("z")) == "ZoneNotFound"
    assert code(graph.set_zone_enforcement("z", intra="off")) == "ZoneNotFound"
    assert graph.store.head() == before
    zone = graph.define_zone("z", ["b", "a", "a"]).unwrap()
    assert zone == Zone(name="z", members=("a", "b"), created_seq=3, updated_seq=3)
    assert (zone.intra, zone.boundary) == ("soft", "hard")
    assert code(graph.add_to_zone("z", "x")) == "NotFound"
    assert code(graph.set_zone_enforcement("z")) == "InvalidInput"


def test_members_come_and_go(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.define_zone("z", ["a"])
    graph.define_zone("y", ["a", "c"])
    assert graph.zones_of("a") == ["y", "z"]
    assert graph.add_to_zone("z", "b").unwrap().members == ("a", "b")
    assert graph.add_to_zone("z", "b").unwrap().members == ("a", "b")
    assert graph.remove_from_zone("z", "a").unwrap().members == ("b",)
    assert graph.remove_from_zone("z", "c").unwrap().members == ("b",)
    assert (graph.zones_of("a"), graph.zones_of("b"), graph.zones_of("none")) == (["y"], ["z"], [])
    assert [zone.name for zone in graph.zones()] == ["y", "z"]
    again = graph.define_zone("z", ["c"], intra="off", boundary="soft").unwrap()
    assert (again.members, again.intra, again.boundary, again.version) == (("c",), "off", "soft", 6)
    assert again.created_seq == 4
    assert graph.verify_integrity(deep=True).ok


def test_d45_a_zone_can_be_deleted_and_its_modes_set(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b")
    graph.define_zone("z", ["a"])
    graph.set_cursor(["a"])
    assert graph.legal_moves() == []
    assert graph.set_zone_enforcement("z", boundary="soft").unwrap().boundary == "soft"
    assert graph.legal_moves()[0].decision == "warn"
    zone = graph.set_zone_enforcement("z", intra="hard", boundary="hard", reason="closed").unwrap()
    assert (zone.intra, zone.boundary) == ("hard", "hard")
    assert graph.delete_zone("z").unwrap() is True
    assert (graph.zones(), graph.zones_of("a")) == ([], [])
    assert graph.legal_moves()[0].decision == "allow"
    assert graph.verify_integrity(deep=True).ok


def test_zones_survive_reopening_snapshots_and_rollback(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = make("a", "b", path=path)
    graph.link("a", "b", id="e1", guard="vars.ok", enforcement="soft")
    graph.set_tunable("escalationThreshold", 1)
    graph.define_zone("z", ["a", "b"], intra="soft")
    graph.set_cursor(["a"])
    graph.transition("b").unwrap()
    graph.lock_policy("tunables", reason="measured")
    kept = (graph.zones(), graph.locks(), graph.get_edge("e1"))
    assert kept[0][0].learned_intra == "hard"
    graph.checkpoint("cp")
    graph.set_zone_enforcement("z", intra="off")
    graph.set_enforcement("e1", "off")
    graph.remove_from_zone("z", "a")
    graph.rollback("cp").unwrap()
    assert (graph.zones(), graph.locks(), graph.get_edge("e1")) == kept
    graph.close()
    again = make(path=path)
    assert (again.zones(), again.locks(), again.get_edge("e1")) == kept
    assert again.verify_integrity(deep=True).ok


@pytest.mark.parametrize("way", ["define", "mode", "add", "remove", "delete"])
def test_another_handle_sees_a_changed_zone_at_once(make: Make, tmp_path: Path, way: str) -> None:
    path = tmp_path / "g.db"
    first = make("a", "b", path=path)
    second = make(path=path)
    first.link("a", "b")
    first.define_zone("z", ["b"] if way == "add" else ["a"], boundary="hard")
    first.set_cursor(["a"])
    assert second.legal_moves() == []
    ways: dict[str, Callable[[], object]] = {
        "define": lambda: first.define_zone("z", []),
        "mode": lambda: first.set_zone_enforcement("z", boundary="off"),
        "add": lambda: first.add_to_zone("z", "a"),
        "remove": lambda: first.remove_from_zone("z", "a"),
        "delete": lambda: first.delete_zone("z"),
    }
    ways[way]()
    assert len(second.legal_moves()) == 1
