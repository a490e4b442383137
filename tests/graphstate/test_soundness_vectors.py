"""Vectors V128, V129, V142 and V118: what is a violation, and repair that converges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Fail, Validation, Violation
from graphstate.algorithms import find_cycle
from tests.graphstate.conftest import Make, Tamper


def kinds(report: Validation) -> list[str]:
    assert report.ok == (not report.violations)
    return [violation.kind for violation in report.violations]


def seq(graph: Adaptogen) -> int:
    return graph.store.head().seq


def test_v142_an_empty_store(make: Make) -> None:
    graph = make()
    assert (graph.cursor(), graph.suggest(), graph.ready(), graph.history()) == ([], [], [], [])
    assert (graph.topo().order, graph.topo().cyclic) == ((), False)
    assert graph.zones() == []
    assert graph.validate() == Validation(ok=True)
    assert graph.optimize() == []
    repair = graph.repair().unwrap()
    assert (repair.ok, repair.fixed, repair.quarantined, repair.residue) == (True, (), (), ())
    assert seq(graph) == 0


def test_v128_d29_edges_to_what_was_set_aside_sleep(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="move").unwrap()
    graph.depend("c", "b", id="wait").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.archive("b").unwrap()
    graph.link("b", "c", id="later").unwrap()
    assert graph.validate().ok
    head = seq(graph)
    assert graph.repair().unwrap().fixed == ()
    assert seq(graph) == head
    assert graph.legal_moves() == []
    graph.set_status("b", "active").unwrap()
    assert [move.edge_id for move in graph.legal_moves()] == ["move"]


def test_v128_a_cursor_on_what_was_set_aside(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.set_cursor(["a", "b", "c"]).unwrap()
    graph.set_cursor(["b"], actor="robot").unwrap()
    graph.archive("a").unwrap()
    graph.deprecate("b").unwrap()
    report = graph.validate()
    assert [(v.kind, v.locus, v.fixable) for v in report.violations] == [
        ("CursorOnDeadNode", {"actor": "developer", "node": "a"}, True),
        ("CursorOnDeadNode", {"actor": "developer", "node": "b"}, True),
        ("CursorOnDeadNode", {"actor": "robot", "node": "b"}, True),
    ]
    head = seq(graph)
    repair = graph.repair(actor="doctor", cause="night shift").unwrap()
    assert (repair.ok, repair.fixed, repair.residue) == (True, report.violations, ())
    assert (graph.cursor(), graph.cursor(actor="robot"), graph.cursor(actor="doctor")) == (["c"], [], [])
    entries = graph.history(from_seq=head + 1)
    assert [(e.type, e.actor) for e in entries] == [("CursorMoved", "doctor")] * 2, "one for each actor"
    assert graph.repair(actor="doctor", cause="night shift").unwrap() == repair
    assert graph.verify_integrity(deep=True).ok


def corrupted(make: Make, tamper: Tamper, path: Path, *statements: str) -> Adaptogen:
    graph = make("a", "b", path=path)
    graph.link("a", "b", id="e").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.step(reward=1).unwrap()
    graph.define_zone("z:1", ["a", "b"], intra="off").unwrap()
    graph.close()
    for sql in statements:
        tamper(path, sql)
    return make(path=path)


@pytest.mark.parametrize(
    ("sql", "kind", "locus"),
    [
        ("DELETE FROM node WHERE id = 'a'", "DanglingEdge", {"edge": "e"}),
        ("DELETE FROM edge WHERE id = 'e'", "OrphanStat", {"stat": "edge", "no": 1}),
        (
            "INSERT INTO zone_member VALUES ('z:1', 'gone')",
            "DanglingZoneMember",
            {"zone": "z:1", "node": "gone"},
        ),
        (
            """UPDATE state SET value = '{"moves":1,"nodes":["gone"]}' WHERE key = 'cursor/developer'""",
            "CursorOnDeadNode",
            {"actor": "developer", "node": "gone"},
        ),
    ],
)
def test_d30_v129_repair_converges_and_says_so(
    make: Make, tamper: Tamper, tmp_path: Path, sql: str, kind: str, locus: dict[str, Any]
) -> None:
    graph = corrupted(make, tamper, tmp_path / "g.db", sql)
    found = {(v.kind, tuple(v.locus.items())) for v in graph.validate().violations}
    assert (kind, tuple(locus.items())) in found
    repair = graph.repair().unwrap()
    assert (repair.ok, len(repair.fixed), repair.residue) == (True, len(found), ())
    assert graph.validate().ok
    assert graph.verify_integrity(deep=True).ok
    edge, stat = graph.get_edge("e"), graph.get_stat("edge", "e")
    assert edge is not None, "no learned edge is lost over tables that can be made again"
    assert stat is not None
    assert stat.visits == 1


def test_what_the_log_itself_says_wrongly_is_mended_by_events(make: Make) -> None:
    from graphstate.events import Draft

    graph = make("a")
    graph.record(
        Draft(
            "EdgeUpserted",
            {
                "id": "e", "src": "a", "dst": "nowhere", "kind": "transition", "label": "", "guard": None,
                "enforcement": None, "weight": 1,
            },
        ),
        Draft("ZoneDefined", {"name": "z:1", "members": ["a", "b:2"], "intra": "off", "boundary": "off"}),
    )  # fmt: skip
    assert kinds(graph.validate()) == ["DanglingEdge", "DanglingZoneMember"]
    repair = graph.repair().unwrap()
    assert (repair.ok, len(repair.fixed)) == (True, 2)
    assert graph.validate().ok
    assert graph.get_edge("e") is None
    assert graph.zones()[0].members == ("a",)
    assert graph.verify_integrity(deep=True).ok


def test_a_cycle_is_left_to_a_person(make: Make) -> None:
    from graphstate.events import Draft

    graph = make("a", "b", "c")
    graph.depend("b", "a").unwrap()
    graph.depend("c", "b").unwrap()
    body = {
        "id": "e", "src": "c", "dst": "a", "kind": "dependency", "label": "", "guard": None,
        "enforcement": None, "weight": 1,
    }  # fmt: skip
    graph.record(Draft("EdgeUpserted", body))
    (violation,) = graph.validate().violations
    assert (violation.kind, violation.locus) == ("DagCycle", {"nodes": ["a", "b", "c", "a"]})
    assert not violation.fixable
    head = seq(graph)
    repair = graph.repair().unwrap()
    assert (repair.ok, repair.fixed, repair.quarantined) == (False, (), (violation,))
    assert seq(graph) == head
    graph.unlink("e").unwrap()
    assert graph.validate().ok


def test_a_broken_log_is_reported_and_left(make: Make, tamper: Tamper, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    graph = corrupted(make, tamper, path, """UPDATE event SET body = '{}' WHERE no & 1023 = 2""")
    assert kinds(graph.validate()) == ["HashChainBreak"]
    (violation,) = graph.validate().violations
    assert violation.locus == {"stream": "graph", "seq": 2}
    assert graph.repair().unwrap().quarantined == (violation,)
    assert not graph.orient().integrity_ok
    assert isinstance(graph.remember("x"), Fail)
    reader = make(path=path, read_only=True)
    assert not reader.orient().integrity_ok


def test_validate_reads_a_read_only_file(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make("a", path=path).close()
    graph = make(path=path, read_only=True)
    assert graph.validate().ok
    refused = graph.repair()
    assert isinstance(refused, Fail)
    assert refused.code == "ReadOnly"


def test_violations_are_noticed_after_every_kind_of_change(make: Make) -> None:
    """What is remembered between looks is dropped by whatever could change it."""
    graph = make("a", "b")
    assert graph.orient().violations == 0
    graph.set_cursor(["a"]).unwrap()
    graph.archive("a").unwrap()
    assert graph.orient().violations == 1
    assert "violations: 1" in graph.render()
    graph.checkpoint("wrong").unwrap()
    graph.set_status("a", "active").unwrap()
    assert graph.orient().violations == 0
    graph.rollback("wrong").unwrap()
    assert graph.orient().violations == 1


def test_find_cycle() -> None:
    assert find_cycle(["a", "b"], [("a", "b")]) is None
    assert find_cycle(["a"], [("a", "a")]) == ["a", "a"]
    assert find_cycle(["a", "b", "c", "d"], [("d", "a"), ("a", "b"), ("b", "a"), ("b", "c")]) == [
        "a",
        "b",
        "a",
    ]
    assert find_cycle(["a"], [("a", "x"), ("x", "a")]) is None


def test_a_violation_is_plain_json(make: Make) -> None:
    from graphstate import to_json

    violation = Violation(kind="DanglingEdge", locus={"edge": "e"}, detail="x", fixable=True)
    assert to_json(violation) == {
        "kind": "DanglingEdge",
        "locus": {"edge": "e"},
        "detail": "x",
        "fixable": True,
    }


def test_names_that_look_alike_are_a_warning(make: Make) -> None:
    graph = make("a")
    graph.remember("b", kind="State", tags=["caf\u00e9", "cafe\u0301"]).unwrap()
    report = graph.validate()
    assert report.ok
    assert report.warnings == (
        "the kinds 'State' and 'state' are different, and look alike",
        "the tags 'cafe\\u0301' and 'caf\\xe9' are different, and look alike",
    )


def test_looking_waits_for_nobody_for_good(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    make("a", path=path).close()
    with (
        Adaptogen.open(path, seed=False, busy_timeout_ms=10) as graph,
        Adaptogen.open(path, seed=False) as other,
    ):
        with other.unit():
            other.remember("held").unwrap()
            assert graph.validate().ok
            refused = graph.repair()
            assert isinstance(refused, Fail)
            assert refused.code == "Busy"
        assert graph.repair().ok
