"""One test for each promise that has none of its own elsewhere, by the number of the defect it rules out."""

from __future__ import annotations

import datetime as dt
import math
import os
import signal
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graphstate import GRAPH, Adaptogen, ErrorCode, Fail, LockHeld, Node, Result, VerbFailed
from graphstate.events import Draft
from graphstate.store.snapshot import state_bytes
from graphstate.verbs.arguments import MAX_VARS
from tests.graphstate.bundles import bundle_of, live, taken_in
from tests.graphstate.conftest import Make


def refused(result: Result[Any], code: ErrorCode = ErrorCode.INVALID_INPUT) -> Fail:
    assert isinstance(result, Fail), result
    assert (result.code, bool(result.hint)) == (code, True), result
    return result


def state(graph: Adaptogen) -> bytes:
    graph.store.projection.flush()
    return state_bytes(graph.store._db)


def whole(graph: Adaptogen) -> bool:
    """Say whether the chains hold and the live tables are those of a replay."""
    return graph.verify_integrity(deep=True).ok


def changes_nothing(graph: Adaptogen, call: Callable[[], Any]) -> Any:
    head, before = graph.head(), state(graph)
    answer = call()
    assert (graph.head(), state(graph)) == (head, before)
    return answer


# ---------------------------------------------------------------------------- durability and history


def test_d11_ownership_ends_with_the_process_that_had_it(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    Adaptogen.open(path).close()
    reading, writing = os.pipe()
    owner = os.fork()
    if owner == 0:
        graph = Adaptogen.open(path, lock="exclusive")
        os.write(writing, b"x")
        time.sleep(60)
        graph.close()
        os._exit(0)
    os.read(reading, 1)
    try:
        with pytest.raises(LockHeld, match=str(owner)):
            Adaptogen.open(path, lock="exclusive")
        with pytest.raises(LockHeld, match=str(owner)):
            Adaptogen.open(path)  # nor may one who asks for no lock write beside it
        with Adaptogen.open(path, read_only=True) as reader:
            assert reader.cursor() == ["idle"]
        assert len(os.listdir("/proc/self/fd")) < 200
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.close(reading)
        os.close(writing)
    with Adaptogen.open(path, lock="exclusive") as graph:
        assert graph.remember("afterwards").ok
    assert not (tmp_path / "graph.db.lock").exists()


def test_d11_a_refused_open_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, lock="exclusive"):
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(LockHeld):
                Adaptogen.open(path, lock="exclusive")
        assert sorted(os.listdir("/proc/self/fd")) == before


def test_d11_writers_in_turn_continue_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with Adaptogen.open(path, seed=False) as one, Adaptogen.open(path, seed=False) as other:
        for number in range(10):
            assert (one, other)[number % 2].remember(f"n{number}").unwrap().created_seq == number + 1
        assert whole(one)
        assert whole(other)
        assert [node.id for node in one.recall()] == [node.id for node in other.recall()]


def test_d12_a_batch_that_fails_leaves_no_phantom_event(make: Make) -> None:
    graph = make("a")

    def fails() -> None:
        graph.store.begin()
        try:
            graph.record(Draft("NodeStatusChanged", {"id": "a", "status": "archived"}))
            graph.record(Draft("CursorMoved", {}))  # what the fold needs is not there
        except KeyError:
            graph.store.rollback()
            raise

    with pytest.raises(KeyError):
        changes_nothing(graph, fails)
    assert graph.store.head().seq == 1
    assert graph.get_node("a").status == "active"  # type: ignore[union-attr]  # it exists
    assert graph.remember("b").unwrap().created_seq == 2
    assert whole(graph)


def test_d12_a_commit_that_fails_leaves_no_phantom_event(make: Make, tmp_path: Path) -> None:
    graph = make("a", path=tmp_path / "graph.db")
    graph.link("a", "a", id="aa").unwrap()
    graph.set_cursor(["a"]).unwrap()
    connection = graph.store._db._connection  # type: ignore[attr-defined]
    connection.set_commit_hook(lambda: True)
    with pytest.raises(Exception, match="constraint"):
        graph.transition("a")
    connection.set_commit_hook(None)
    assert graph.store.head().seq == 3
    assert graph.get_stat("edge", "aa") is None
    assert graph.transition("a").ok
    assert graph.store.head().seq == 4
    assert whole(graph)


@pytest.mark.parametrize(
    "payload",
    [
        {"__proto__": {"x": 1}, "constructor": 2, "toString": 3},
        {"whole": 1.0, "negative zero": -0.0, "large": 1e300, "exact": 9_007_199_254_740_993},
        {"b": 1, "a": [(1, 2), {"deep": (None, True)}]},
        {"é": "e\u0301", "": "\u0000", "\U0001f98a": "\u2028"},
    ],
    ids=["names of prototypes", "numbers", "order and tuples", "texts"],
)
def test_d13_what_is_live_is_what_a_replay_makes(make: Make, tmp_path: Path, payload: Any) -> None:
    graph = make(path=tmp_path / "graph.db")
    live = graph.remember("a", payload=payload).unwrap()
    assert graph.get_node("a") == live
    assert repr(live.payload) == repr(graph.get_node("a").payload)  # type: ignore[union-attr]  # it exists
    before = state(graph)
    graph.rebuild().unwrap()
    assert state(graph) == before
    assert whole(graph)
    graph.close()
    assert repr(make(path=tmp_path / "graph.db").get_node("a").payload) == repr(live.payload)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value", [math.inf, math.nan, dt.date(2026, 1, 1), {1, 2}, b"bytes", ..., {1: 2}, "\ud800"], ids=str
)
def test_d13_what_is_no_json_is_refused(make: Make, value: Any) -> None:
    graph = make("a")
    for call in (
        lambda: graph.remember("a", payload={"x": value}),
        lambda: graph.remember("a", patch={"x": value}),
        lambda: graph.plan({"nodes": [{"id": "b", "payload": {"x": value}}]}),
        lambda: graph.migrate("state", lambda _: {"x": value}),
    ):
        refused(changes_nothing(graph, call))


def test_d38_opening_replays_nothing_and_reading_repairs_nothing(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    graph = make("a", path=path)
    graph.link("a", "a").unwrap()
    graph.set_cursor(["a"]).unwrap()
    for _ in range(50):
        graph.transition("a").unwrap()
    graph.verify_integrity()
    head = graph.store.head()
    graph.close()
    data = path.read_bytes()
    for options in ({"read_only": True}, {}):
        asked: list[str] = []
        again = make(path=path, **options)
        listen(again, asked)
        assert again.recovery.replayed == 0
        assert again.cursor() == ["a"]
        assert len(again.suggest()) == 1
        assert not [sql for sql in asked if "FROM event" in sql or sql.startswith(("DELETE", "INSERT"))]
        assert again.verify_integrity().ok
        assert not [sql for sql in asked if "count(*) FROM event" in sql]
        assert again.store.log.verified(GRAPH) == head
        again.close()
        assert path.read_bytes() == data


def listen(graph: Adaptogen, asked: list[str]) -> None:
    """Note every statement from now on."""

    def note(cursor: object, sql: str, bindings: object) -> bool:
        asked.append(sql)
        return True

    graph.store._db._connection.set_exec_trace(note)  # type: ignore[attr-defined]


def test_d38_verification_reads_rows_as_it_goes(make: Make) -> None:
    graph = make("a")
    graph.set_tunable("snapshotInterval", 0).unwrap()
    with graph.unit():
        for number in range(4_000):
            graph.remember("a", payload={"text": "x" * 2_000, "n": number}).unwrap()
    tracemalloc.start()
    assert graph.verify_integrity().ok
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4_000_000, "8 MB of events are not held at once"


@pytest.mark.parametrize(("asked", "level"), [("process", 1), ("power", 2)])
def test_d39_who_asks_gets_full_syncs_and_a_checkpoint_always(
    make: Make, tmp_path: Path, asked: str, level: int
) -> None:
    graph = make("a", path=tmp_path / "graph.db", durability=asked)
    levels: list[int] = []

    def commits() -> bool:
        (row,) = graph.store._db._connection.execute("PRAGMA synchronous")  # type: ignore[attr-defined]
        levels.append(row[0])
        return False

    connection = graph.store._db._connection  # type: ignore[attr-defined]
    assert graph.durability == asked
    connection.set_commit_hook(commits)
    graph.remember("b").unwrap()
    assert levels == [level]
    graph.checkpoint("here").unwrap()
    graph.rollback("here").unwrap()
    assert set(levels[1:]) == {2}
    graph.remember("c").unwrap()
    assert levels[-1] == level
    connection.set_commit_hook(None)


# ---------------------------------------------------------------------------- policy


@pytest.mark.parametrize("order", [("big", "small"), ("small", "big")])
def test_d9_crossing_into_a_nested_zone_asks_the_zone_around_it_too(
    make: Make, order: tuple[str, str]
) -> None:
    zones = {"big": (["a", "b"], "hard", "off"), "small": (["a"], "off", "off")}
    graph = make("a", "b")
    graph.link("a", "b", id="ab").unwrap()
    graph.set_cursor(["a"]).unwrap()
    for name in order:
        members, intra, boundary = zones[name]
        graph.define_zone(name, members, intra=intra, boundary=boundary).unwrap()  # type: ignore[arg-type]
    outcome = graph.transition("b").unwrap()
    assert (outcome.applied, outcome.trace.code) == (False, "HardBlocked")
    assert outcome.trace.reasons == ("zone boundary crossing small->?", "intra-zone policy hard")
    graph.set_zone_enforcement("big", intra="soft").unwrap()
    assert graph.explain_transition("b").unwrap().decision == "warn"
    graph.set_zone_enforcement("small", boundary="hard").unwrap()
    assert graph.explain_transition("b").unwrap().decision == "deny"


MISSPELT: dict[str, Callable[[Adaptogen, Any], Result[Any]]] = {
    "zone intra": lambda graph, word: graph.define_zone("z", ["a"], intra=word),
    "zone boundary": lambda graph, word: graph.define_zone("z", ["a"], boundary=word),
    "set zone intra": lambda graph, word: graph.set_zone_enforcement("y", intra=word),
    "set zone boundary": lambda graph, word: graph.set_zone_enforcement("y", boundary=word),
    "derived zone": lambda graph, word: graph.derive_zone("a", ratify=True, name="z", boundary=word),
    "edge mode": lambda graph, word: graph.set_enforcement("ab", word),
    "edge enforcement": lambda graph, word: graph.link("a", "b", enforcement=word),
    "edge kind": lambda graph, word: graph.link("a", "b", kind=word),
    "status": lambda graph, word: graph.set_status("a", word),
    "status of a new node": lambda graph, word: graph.remember("n", status=word),
    "lock": lambda graph, word: graph.lock_policy(word, "ab"),
}


@pytest.mark.parametrize("verb", MISSPELT)
@pytest.mark.parametrize("word", ["Hard", "banana", "", " soft", 1, True, ["hard"], {"hard": 1}], ids=repr)
def test_d17_a_word_from_no_list_is_refused(make: Make, verb: str, word: Any) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="ab").unwrap()
    graph.define_zone("y", ["a"]).unwrap()
    failed = refused(changes_nothing(graph, lambda: MISSPELT[verb](graph, word)))
    assert "must be one of" in failed.message


@pytest.mark.parametrize(
    "given",
    [
        {"tags": "red"}, {"tags": [1]}, {"tags": [""]}, {"tags": ["a\nb"]}, {"tags": [None]}, {"kind": ""}, {"kind": 7},
        {"kind": "\u202e"}, {"label": 3}, {"embedding": "12"}, {"embedding": []}, {"embedding": [math.nan]},
        {"embedding": [True]}, {"embedding": ["1"]}, {"embedding": 5},
    ],
    ids=repr,
)  # fmt: skip
def test_d17_a_node_is_checked_where_it_enters(make: Make, given: Any) -> None:
    graph = make("a")
    refused(changes_nothing(graph, lambda: graph.remember("a", **given)))
    refused(changes_nothing(graph, lambda: graph.plan({"nodes": [{"id": "a", **given}]})))


# ---------------------------------------------------------------------------- memory and learning


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "x", None, True, [1], 10**400, 1e7])
def test_d14_a_reward_is_a_finite_number_within_bounds(make: Make, value: Any) -> None:
    graph = walked(make)
    for call in (
        lambda: graph.reward(value),
        lambda: graph.reward(value, edge_id="ab"),
        lambda: graph.reward(value, trace=True),
        *((lambda: graph.step(reward=value),) if value is not None else ()),
    ):
        refused(changes_nothing(graph, call))


@pytest.mark.parametrize(
    "given",
    [{"depth": -1}, {"depth": 33}, {"depth": 1.5}, {"depth": True}, {"lambda_": -0.1}, {"lambda_": 1.1}, {"lambda_": math.nan}],
    ids=repr,
)  # fmt: skip
def test_d14_a_trace_has_bounds(make: Make, given: Any) -> None:
    graph = walked(make)
    refused(changes_nothing(graph, lambda: graph.reward(1, trace=True, **given)))


def test_d14_each_actor_s_own_last_move_is_credited(make: Make) -> None:
    graph = walked(make)
    graph.link("a", "c", id="ac").unwrap()
    robot = graph.as_actor("robot", trust="model")
    robot.set_cursor(["a"]).unwrap()
    robot.transition("c").unwrap()
    graph.reward(1).unwrap()  # the developer's last move is older, and its own
    assert graph.get_stat("edge", "bc").successes == 1  # type: ignore[union-attr]  # it was walked
    assert graph.get_stat("edge", "ac").successes == 0  # type: ignore[union-attr]  # it was walked
    refused(graph.reward(1, actor="nobody"), ErrorCode.NOT_FOUND)


def walked(make: Make) -> Adaptogen:
    graph = make("a", "b", "c")
    graph.link("a", "b", id="ab").unwrap()
    graph.link("b", "c", id="bc").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()
    graph.transition("c").unwrap()
    return graph


EXPECTING: dict[str, Callable[[Adaptogen, int], Result[Any]]] = {
    "remember": lambda graph, version: graph.remember("a", label="x", expect_version=version),
    "link": lambda graph, version: graph.link("a", "b", id="ab", weight=3, expect_version=version),
    "set_enforcement": lambda graph, version: graph.set_enforcement("ab", "off", expect_version=version),
    "unlink": lambda graph, version: graph.unlink("ab", expect_version=version),
    "define_zone": lambda graph, version: graph.define_zone("z", ["b"], expect_version=version),
    "set_zone_enforcement": lambda graph, version: graph.set_zone_enforcement(
        "z", intra="off", expect_version=version
    ),
    "add_to_zone": lambda graph, version: graph.add_to_zone("z", "b", expect_version=version),
    "remove_from_zone": lambda graph, version: graph.remove_from_zone("z", "a", expect_version=version),
    "delete_zone": lambda graph, version: graph.delete_zone("z", expect_version=version),
    "split_state": lambda graph, version: graph.split_state("a", "n", ["ab"], expect_version=version),
    "merge_states": lambda graph, version: graph.merge_states("a", "b", expect_version=version),
}


@pytest.mark.parametrize("verb", EXPECTING)
def test_d21_what_is_at_another_version_is_a_conflict(make: Make, verb: str) -> None:
    graph = make("a", "b")
    graph.remember("a").unwrap()
    graph.link("a", "b", id="ab").unwrap()
    graph.link("a", "b", id="ab", upsert=True).unwrap()
    graph.define_zone("z", ["a"]).unwrap()
    graph.add_to_zone("z", "a").unwrap()
    for version in (0, 1, 3):
        failed = refused(changes_nothing(graph, partial(EXPECTING[verb], graph, version)), ErrorCode.CONFLICT)
        assert failed.details["current"] == 2
    hostile: tuple[Any, ...] = (-1, 1.5, True, "2")
    for wrong in hostile:
        refused(changes_nothing(graph, partial(EXPECTING[verb], graph, wrong)))
    assert EXPECTING[verb](graph, 2).ok
    assert whole(graph)


def test_d21_nothing_is_at_version_0(make: Make) -> None:
    graph = make("a", "b")
    for call in (
        lambda version: graph.remember("n", expect_version=version),
        lambda version: graph.link("a", "b", id="n", expect_version=version),
        lambda version: graph.define_zone("n", ["a"], expect_version=version),
    ):
        refused(changes_nothing(graph, partial(call, 1)), ErrorCode.CONFLICT)
        assert call(0).ok
        refused(changes_nothing(graph, partial(call, 0)), ErrorCode.CONFLICT)


def test_d21_a_zone_has_a_new_version_whenever_somebody_changed_it(make: Make) -> None:
    graph = make("a", "b")
    versions = [
        graph.define_zone("z", ["a"]).unwrap().version,
        graph.add_to_zone("z", "b").unwrap().version,
        graph.remove_from_zone("z", "b").unwrap().version,
        graph.set_zone_enforcement("z", intra="off").unwrap().version,
        graph.define_zone("z", ["a"]).unwrap().version,
    ]
    assert versions == [1, 2, 3, 4, 5]


def test_d21_a_cursor_is_set_only_from_where_it_was_seen(make: Make) -> None:
    graph = make("a", "b", "c")
    assert graph.set_cursor(["a", "b"], expect_nodes=[]).ok
    failed = refused(
        changes_nothing(graph, lambda: graph.set_cursor(["c"], expect_nodes=["a"])), ErrorCode.CONFLICT
    )
    assert failed.details["current"] == ["a", "b"]
    refused(changes_nothing(graph, lambda: graph.set_cursor(["c"], expect_nodes=[])), ErrorCode.CONFLICT)
    refused(changes_nothing(graph, lambda: graph.set_cursor(["c"], expect_nodes="ab")))
    assert graph.set_cursor(["c"], expect_nodes=["b", "a"]).ok
    assert graph.set_cursor(["a"], actor="robot", expect_nodes=[]).ok


FIELDS: dict[str, tuple[int, Callable[[Adaptogen, str], Result[Any]]]] = {
    "label": (1_024, lambda graph, text: graph.remember("n", label=text)),
    "label of an edge": (1_024, lambda graph, text: graph.link("a", "b", label=text)),
    "kind": (128, lambda graph, text: graph.remember("n", kind=text)),
    "tag": (128, lambda graph, text: graph.remember("n", tags=[text])),
    "cause": (256, lambda graph, text: graph.remember("n", cause=text)),
    "reason of an edge": (1_024, lambda graph, text: graph.link("a", "b", reason=text)),
    "reason of a removal": (1_024, lambda graph, text: graph.unlink("ab", reason=text)),
    "reason of a cursor": (1_024, lambda graph, text: graph.set_cursor(["a"], reason=text)),
    "reason of a zone": (1_024, lambda graph, text: graph.define_zone("z", ["a"], reason=text)),
    "reason of a lock": (1_024, lambda graph, text: graph.lock_policy("edge", "ab", reason=text)),
    "reason of a rollback": (1_024, lambda graph, text: graph.rollback("here", reason=text)),
    "vars": (
        MAX_VARS - len('{"v":""}'),
        lambda graph, text: graph.transition(edge_id="ab", vars={"v": text}),
    ),
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("letter", ["x", "é", "日", "🦊"])
def test_d22_every_text_is_bounded_in_utf_8_bytes(make: Make, field: str, letter: str) -> None:
    most, call = FIELDS[field]
    graph = make("a", "b")
    graph.link("a", "b", id="ab").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.checkpoint("here").unwrap()
    fits = letter * (most // len(letter.encode()))
    said = MAX_VARS if field == "vars" else most
    assert str(said) in refused(changes_nothing(graph, lambda: call(graph, fits + letter))).message
    assert call(graph, fits).ok


def test_d22_lists_and_events_are_bounded_too(make: Make) -> None:
    graph = make("a")
    refused(changes_nothing(graph, lambda: graph.remember("n", tags=[f"t{i}" for i in range(65)])))
    refused(changes_nothing(graph, lambda: graph.remember("n", embedding=[0.5] * 8_193)))
    refused(changes_nothing(graph, lambda: graph.define_zone("z", ["a"] * 100_001)))
    refused(changes_nothing(graph, lambda: graph.set_cursor(["a"] * 100_001)))
    names = [f"{number:0128d}" for number in range(8_100)]
    with graph.unit():
        for name in names:
            graph.remember(name).unwrap()
    refused(changes_nothing(graph, lambda: graph.define_zone("z", names)), ErrorCode.PAYLOAD_TOO_LARGE)
    refused(changes_nothing(graph, lambda: graph.set_cursor(names)), ErrorCode.PAYLOAD_TOO_LARGE)


def test_d22_a_split_label_ends_between_characters(make: Make) -> None:
    graph = make()
    graph.remember("a", label="日" * 341).unwrap()
    graph.split_state("a", "b", []).unwrap()
    label = graph.get_node("b").label  # type: ignore[union-attr]  # it was made
    assert label == "日" * 338 + " (split)"


def test_d22_what_a_verb_accepts_a_bundle_carries(make: Make) -> None:
    graph = make()
    guard = f"to.name == '{'日' * 1_980}'"
    graph.remember("a", label="日" * 341, kind="日" * 42, tags=["🦊" * 32], cause="é" * 128).unwrap()
    graph.link("a", "a", id="aa", guard=guard, label="é" * 512, reason="é" * 512).unwrap()
    graph.define_zone("z", ["a"], reason="日" * 341).unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("a").unwrap()  # writes the whole guard down as the reason
    with taken_in(bundle_of(graph)) as copy:
        assert live(copy) == live(graph)
    graph.link("a", "a", id="hard", guard=guard, enforcement="hard").unwrap()
    with graph.branch(":memory:").unwrap() as branch:
        branch.link("a", "a", id="other", guard=guard).unwrap()
        assert not branch.transition(edge_id="hard").unwrap().applied
        graph.merge(branch).unwrap()
    assert graph.get_edge("other").guard == guard  # type: ignore[union-attr]  # it was merged
    assert whole(graph)


def library(make: Make, **options: Any) -> Adaptogen:
    graph = make(**options)
    for name, words, vector, more in (
        ("both", "fox den", [1, 0], {"kind": "fact", "tags": ["red"]}),
        ("text", "fox", [0, 1], {"kind": "fact", "tags": ["red"]}),
        ("near", "fox den in the far green hills", [1, 0.01], {"kind": "fact"}),
        ("other", "fox and dog and cat", [0.6, 0.8], {"kind": "task", "tags": ["red"]}),
        ("apart", "stone", [1, 0], {"kind": "fact"}),
        ("plain", "fox", None, {"kind": "fact"}),
    ):
        graph.remember(name, label=words, embedding=vector, **more).unwrap()
    return graph


def ids(nodes: list[Node]) -> list[str]:
    return [node.id for node in nodes]


@pytest.mark.parametrize("fts", [True, False], ids=["index", "scan"])
def test_d23_text_vector_and_filters_are_one_question(make: Make, fts: bool) -> None:
    graph = library(make, fts=fts)
    by_text = [name for name in ids(graph.recall(text="fox")) if name != "plain"]
    by_vector = [name for name in ids(graph.recall(embedding=[1, 0])) if name != "apart"]
    assert (by_text, by_vector) == (["text", "both", "other", "near"], ["both", "near", "other", "text"])
    score = {name: 1 / (61 + by_text.index(name)) + 1 / (61 + by_vector.index(name)) for name in by_text}
    fused = sorted(score, key=lambda name: (-score[name], name))
    assert ids(graph.recall(text="fox", embedding=[1, 0])) == fused
    assert fused[0] == "both"
    assert ids(graph.recall(text="fox", embedding=[1, 0], limit=2)) == fused[:2]
    assert ids(graph.recall(text="fox", embedding=[1, 0], kind="fact", tag="red")) == ["both", "text"]
    assert ids(graph.recall(text="fox", embedding=[1, 0], kind="task")) == ["other"]
    assert ids(graph.recall(text="fox", embedding=[1, 0], id="near", status="active")) == ["near"]
    assert graph.recall(text="badger", embedding=[1, 0]) == []
    assert graph.recall(text="fox", embedding=[1, 0], kind="task", tag="blue") == []


@pytest.mark.parametrize("fts", [True, False], ids=["index", "scan"])
def test_d23_where_nothing_has_a_vector_text_alone_ranks(make: Make, fts: bool) -> None:
    graph = library(make, fts=fts)
    assert ids(graph.recall(text="fox", embedding=[1, 0], id="plain")) == ["plain"]


@pytest.mark.parametrize("vector", [[1], [1, 0, 0]])
def test_d23_a_vector_of_another_length_is_refused(make: Make, vector: list[float]) -> None:
    graph = library(make)
    for more in ({}, {"text": "fox"}, {"kind": "task"}):
        with pytest.raises(VerbFailed, match=rf"has {len(vector)} numbers.* have 2") as raised:
            graph.recall(embedding=vector, **more)  # type: ignore[arg-type]  # one dictionary for several types
        assert raised.value.code == ErrorCode.EMBEDDING_MISMATCH
    refused = graph.remember("third", embedding=vector)
    assert isinstance(refused, Fail)
    assert refused.code == ErrorCode.EMBEDDING_MISMATCH
    assert graph.get_node("third") is None


def test_d24_an_edge_is_replaced_only_by_who_says_so(make: Make) -> None:
    graph = walked(make)
    graph.reward(1, edge_id="ab").unwrap()
    learned = graph.get_stat("edge", "ab")
    refused(changes_nothing(graph, lambda: graph.link("b", "c", id="ab")), ErrorCode.DUPLICATE_ID)
    refused(changes_nothing(graph, lambda: graph.link("b", "c", id="")))
    refused(changes_nothing(graph, lambda: graph.depend("a", "b", id="")))
    graph.link("a", "b", id="ab", weight=2, upsert=True).unwrap()
    assert graph.get_stat("edge", "ab") == learned
    graph.reweight().unwrap()
    moved = graph.link("a", "c", id="ab", upsert=True).unwrap()
    assert (moved.version, moved.learned_weight) == (3, 0)
    assert graph.get_stat("edge", "ab") is None
    assert whole(graph)


def test_d26_a_share_of_a_good_outcome_never_lowers_a_good_edge(make: Make) -> None:
    graph = walked(make)
    for _ in range(12):
        graph.reward(1, edge_id="ab").unwrap()
    before = graph.get_stat("edge", "ab").ema_reward  # type: ignore[union-attr]  # it was rewarded
    assert before == pytest.approx(0.986158712799)
    graph.reward(1, trace=True, depth=2).unwrap()
    after = graph.get_stat("edge", "ab").ema_reward  # type: ignore[union-attr]  # it was rewarded
    assert after == pytest.approx(before + 0.3 * 0.6 * (1 - before))
    assert before < after < 1


def test_d26_step_and_reward_credit_edge_and_target_alike(make: Make) -> None:
    by_step, by_reward = make("a", "b"), make("a", "b")
    for graph in (by_step, by_reward):
        graph.link("a", "b", id="ab").unwrap()
        graph.set_cursor(["a"]).unwrap()
    by_step.step(reward=0.5).unwrap()
    by_reward.step().unwrap()
    by_reward.reward(0.5).unwrap()
    for kind, name in (("edge", "ab"), ("node", "b")):
        one, other = (graph.get_stat(kind, name) for graph in (by_step, by_reward))
        assert one == other
        assert one is not None
        assert one.successes == 1
        assert one.ema_reward == pytest.approx(0.15)
    assert by_step.get_stat("node", "a") is None


# ---------------------------------------------------------------------------- actors and time


def test_d43_everybody_has_a_cursor_and_a_name_in_the_log(make: Make) -> None:
    graph = walked(make)
    robot = graph.as_actor("robot", trust="model")
    robot.set_cursor(["a"], cause="first").unwrap()
    robot.transition("b", cause="second").unwrap()
    graph.transition(edge_id="bc", actor="robot", cause="third").unwrap()
    assert (graph.cursor(), robot.cursor(), graph.cursor(actor="robot")) == (["c"], ["c"], ["c"])
    rows = list(graph.store.read(GRAPH))
    assert all(row.actor and row.trust for row in rows)
    assert [(row.actor, row.trust, row.cause) for row in rows[-3:]] == [
        ("robot", "model", "first"),
        ("robot", "model", "second"),
        ("robot", "developer", "third"),
    ]
    again = robot.transition("b", cause="second")
    assert again.ok
    assert again.repeated
    assert len(list(graph.store.read(GRAPH))) == len(rows)


def test_d43_heads_that_meet_are_one_and_the_others_stay(make: Make) -> None:
    graph = make("a", "b", "c")
    for src in "ab":
        graph.link(src, "c", id=f"{src}c").unwrap()
    graph.set_cursor(["a", "b"]).unwrap()
    assert graph.transition("c", head="a").unwrap().from_ == "a"
    assert graph.cursor() == ["b", "c"]
    assert graph.transition("c", head="b").ok
    assert graph.cursor() == ["c"]
    assert [entry.payload["from"] for entry in graph.history(type="TransitionTaken")] == ["a", "b"]
    assert whole(graph)


def test_d44_what_others_do_ages_no_reward(make: Make) -> None:
    graph = walked(make)
    graph.set_tunable("explore", "greedy").unwrap()
    graph.reward(1, edge_id="ab").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.set_tunable("decayHalfLife", 2).unwrap()
    fresh = graph.suggest()[0].breakdown.reward
    robot = graph.as_actor("robot")
    robot.set_cursor(["a"]).unwrap()
    for number in range(20):
        graph.remember(f"n{number}").unwrap()
        robot.transition("b").unwrap()
        robot.set_cursor(["a"]).unwrap()
    assert graph.suggest()[0].breakdown.reward == fresh == pytest.approx(0.3)


def test_d44_a_visit_without_a_reward_refreshes_none(make: Make) -> None:
    graph = walked(make)
    graph.set_tunable("decayHalfLife", 2).unwrap()
    graph.reward(1, edge_id="ab").unwrap()
    seen = []
    for _ in range(4):
        graph.set_cursor(["a"]).unwrap()
        seen.append(graph.suggest()[0].breakdown.reward)
        graph.transition("b").unwrap()
    assert seen == [pytest.approx(0.3 * 0.5 ** (age / 2)) for age in range(4)]
    graph.reward(1, edge_id="ab").unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert graph.suggest()[0].breakdown.reward > seen[0]
