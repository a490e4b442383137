"""Zones, guards and locks in bundles and branches: imported policy lifts nothing that is locked."""

from __future__ import annotations

import io
from typing import Any

import pytest

from graphstate import Fail, VerbFailed
from graphstate.verbs.importing import take_in
from tests.graphstate.bundles import bundle_of, invariants, live, prune, taken_in
from tests.graphstate.conftest import Make

pytest.importorskip("graphstate.verbs.locks", reason="nothing can be locked")


def governed(graph: Any) -> Any:
    graph.link("a", "b", id="ab", guard="to.open == true", enforcement="hard").unwrap()
    graph.link("b", "a", id="ba", guard="to.open == true", enforcement="soft").unwrap()
    graph.define_zone("yard", ["a", "b"], intra="soft", boundary="hard").unwrap()
    graph.add_to_zone("yard", "c").unwrap()
    graph.set_cursor(["b"]).unwrap()
    for _ in range(3):
        graph.step().unwrap()
        graph.set_cursor(["b"]).unwrap()
    graph.set_enforcement("ab", "soft").unwrap()
    return graph


@pytest.mark.parametrize("compacted", [False, True])
def test_policy_arrives_but_for_its_locks(make: Make, compacted: bool) -> None:
    graph: Any = governed(make("a", "b", "c"))
    graph.lock_policy("zone", "yard", reason="agreed").unwrap()
    graph.lock_policy("tunables", reason="measured").unwrap()
    if compacted:
        prune(graph)
        graph.remember("d").unwrap()
    with taken_in(bundle_of(graph)) as copy:
        other: Any = copy
        wanted, state = live(graph), live(copy)
        wanted["policy_lock"] = []
        assert state == wanted
        assert other.locks() == []
        assert other.zones_of("a") == graph.zones_of("a")
        assert copy.set_tunable("epsilon", 0.5).ok
        invariants(copy)


def test_a_bundle_changes_nothing_that_is_locked(make: Make) -> None:
    source: Any = governed(make("a", "b", "c"))
    source.set_tunable("epsilon", 0.5).unwrap()
    target: Any = make("own")
    target.lock_policy("tunables", reason="measured").unwrap()
    before = target.head()
    bundle = bundle_of(source)
    with pytest.raises(VerbFailed) as refused:
        take_in(target, io.BytesIO(bundle), merge=True, on_conflict="fail", expect_head=None)
    assert [c["kind"] for c in refused.value.details["conflicts"]] == ["locked"]
    with pytest.raises(VerbFailed) as refused:
        take_in(target, io.BytesIO(bundle), merge=True, on_conflict="theirs", expect_head=None)
    assert refused.value.code == "Locked"
    assert target.head() == before
    take_in(target, io.BytesIO(bundle), merge=True, on_conflict="ours", expect_head=None)
    assert target.get_tunables()["epsilon"] == 0.1
    assert [zone.name for zone in target.zones()] == ["yard"]
    invariants(target)


def test_a_branch_of_whom_locks_bind_lifts_none(make: Make) -> None:
    main: Any = governed(make("a", "b", "c"))
    main.lock_policy("edge", "ab", reason="agreed").unwrap()
    with main.branch(":memory:").unwrap() as child:
        child.unlock_policy("edge", "ab").unwrap()
        child.set_enforcement("ab", "off").unwrap()
        child.remember("news").unwrap()
        robot = main.as_actor("robot", trust="model")
        answer = robot.merge(child)
        assert isinstance(answer, Fail)
        assert {c["kind"] for c in answer.details["conflicts"]} == {"locked"}
        assert robot.merge(child, on_conflict="theirs").code == "Locked"
        assert robot.merge(child, on_conflict="ours").unwrap().merged == 1
        assert [lock.id for lock in main.locks()] == ["ab"]
        assert main.get_edge("ab").enforcement == "soft"
    invariants(main)
