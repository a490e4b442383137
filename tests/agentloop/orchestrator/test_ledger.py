"""The file of a run: projections, replays, what they notice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentloop import (
    DamagedLedger,
    ManualClock,
    MemoryLedgerStore,
    RunConfig,
    RunFile,
    UnsupportedVersion,
    digest,
    parse_ledger,
    playback,
    read_run_file,
    replay_file,
)
from agentloop._canonical import decode, encode
from agentloop.orchestrator.config import Budget
from agentloop.orchestrator.phases import Phase
from agentloop.orchestrator.providers import ChunkedProvider, ScriptedProvider
from tests.agentloop.orchestrator.scenes import A, F, T, play, search

pytestmark = pytest.mark.anyio

replace = msgspec.structs.replace


async def answered() -> RunFile:
    return (await play([A()])).ledger


def with_entry(file: RunFile, number: int, **changes: Any) -> RunFile:
    entries = [replace(entry, **changes) if entry.seq == number else entry for entry in file.entries]
    return replace(file, entries=tuple(entries))


async def test_v081_a_run_replays() -> None:
    result = await play([T(), F(), A()], [search()])
    replayed = replay_file(result.ledger)
    assert (replayed.ok, replayed.divergence) == (True, None)
    assert replayed.entries_replayed == len(result.ledger.entries)
    assert replayed.state.phase is result.ledger.final_phase
    assert replayed.state == result.state


async def test_v082_another_phase_is_noticed() -> None:
    replayed = replay_file(with_entry(await answered(), 3, to=Phase.TOOLS))
    assert replayed.divergence is not None
    assert (replayed.ok, replayed.entries_replayed) == (False, 3)
    assert msgspec.to_builtins(replayed.divergence) == {
        "kind": "phase",
        "seq": 3,
        "event": "model.succeeded",
        "recorded": "tools",
        "replayed": "route",
        "path": "to",
    }


async def test_v083_a_missing_end_is_noticed() -> None:
    file = await answered()
    replayed = replay_file(replace(file, entries=file.entries[:-1]))
    assert not replayed.ok
    assert replayed.divergence is not None
    assert replayed.divergence.kind == "truncated"


async def test_v084_an_entry_after_the_end_is_noticed() -> None:
    file = await answered()
    extra = replace(file.entries[0], seq=6)
    divergence = replay_file(replace(file, entries=(*file.entries, extra))).divergence
    assert divergence is not None
    assert (divergence.kind, divergence.seq) == ("extra", 6)
    assert (divergence.recorded, divergence.replayed) == ("assemble", "done")


async def test_v085_another_usage_or_outcome_is_noticed() -> None:
    file = await answered()
    assert file.outcome is not None
    for changed, path in (
        (replace(file, usage=replace(file.usage, total_tokens=1)), "usage.totalTokens"),
        (replace(file, outcome=replace(file.outcome, output="other")), "outcome"),
        (replace(file, final_phase=Phase.FAILED), "finalPhase"),
        (replace(file, finished_at=9), "finishedAt"),
        (replace(file, goal="other"), "goal"),
    ):
        divergence = replay_file(changed).divergence
        assert divergence is not None
        assert (divergence.kind, divergence.path) == ("state", path)


async def test_v086_a_tighter_limit_says_where_it_would_have_halted() -> None:
    file = (await play([T(), A()], [search()])).ledger
    divergence = replay_file(file, config=RunConfig(budget=Budget(max_steps=1))).divergence
    assert divergence is not None
    assert divergence.event == "observations.recorded"
    assert (divergence.recorded, divergence.replayed) == ("assemble", "halted")


async def test_v087_a_file_is_read_back() -> None:
    for turns in ([T(), F(), A("é")], [F("fatal")], [A(" ")]):
        file = (await play(turns, [search()], budget={"maxConsecutiveFailures": 2})).ledger
        data = file.serialise()
        again = parse_ledger(data)
        assert again == file
        assert again.serialise() == data
        assert replay_file(again).ok
    for version in (99, 3, "2", None, True):
        with pytest.raises(UnsupportedVersion):
            parse_ledger(encode({**decode(data), "version": version}))
    for broken in (b"", b"[]", b'{"version":2}', data[:-1]):
        with pytest.raises((DamagedLedger, UnsupportedVersion)):
            parse_ledger(broken)


async def test_v087_a_file_of_the_first_version_is_compared_by_phases() -> None:
    data = decode((await answered()).serialise())
    old = {**data, "version": 1, "config": {name: data["config"][name] for name in ("budget", "retry")}}
    old["usage"] = {name: count for name, count in data["usage"].items() if name != "modelInvocations"}
    file = parse_ledger(encode(old))
    assert replay_file(file).ok
    assert not replay_file(with_entry(file, 3, to=Phase.TOOLS)).ok


async def test_v088_the_fingerprint_tells_the_path_only() -> None:
    file = await answered()
    path = ["init->assemble", "assemble->model", "model->route", "route->finalize", "finalize->done", "|"]
    assert file.phase_trace == path[:-1]
    assert file.fingerprint == digest(path) == "ed485d24"
    other = (await play([A("something else", usage={"promptTokens": 9})])).ledger
    assert other.fingerprint == "ed485d24"
    assert (await play([T(), A()], [search()])).ledger.fingerprint != "ed485d24"


async def test_w45_the_second_fingerprint_tells_how_it_came_out() -> None:
    one = (await play([T(), A()], [search()])).ledger

    async def fails(q: str) -> dict[str, Any]:
        return {"ok": False, "output": "nothing found"}

    other = (await play([T(), A()], [search(handler=fails)])).ledger
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint2 != other.fingerprint2
    assert len(one.fingerprint2) == 16
    empty, denied = [(await play(turns)).ledger for turns in ([], [F("fatal", "auth.invalid_key")])]
    assert (empty.fingerprint, empty.fingerprint2 == denied.fingerprint2) == (denied.fingerprint, False)


async def test_w26_another_event_effect_or_order_is_noticed() -> None:
    file = (await play([T(), A()], [search()])).ledger
    kinds = {}
    for number in range(1, len(file.entries) + 1):
        entry = file.entries[number - 1]
        changed = {
            "effects": with_entry(file, number, effects=("wait", *entry.effects)),
            "from": with_entry(file, number, from_phase=Phase.BACKOFF),
            "at": with_entry(file, number, at=entry.at + 1),
            "removed": replace(file, entries=tuple(one for one in file.entries if one is not entry)),
            "twice": replace(file, entries=(*file.entries[:number], entry, *file.entries[number:])),
        }
        for what, mutated in changed.items():
            replayed = replay_file(mutated)
            assert not replayed.ok, (number, what)
            assert replayed.divergence is not None
            kinds[what] = replayed.divergence.kind
    assert kinds == {
        "effects": "effects",
        "from": "phase",
        "at": "event",
        "removed": "truncated",
        "twice": "extra",
    }


async def test_w26_an_emitted_event_that_says_something_else_is_noticed() -> None:
    file = await answered()
    event: Any = file.entries[3].event
    divergence = replay_file(with_entry(file, 4, event=replace(event, content="other"))).divergence
    assert divergence is not None
    assert (divergence.kind, divergence.seq) == ("emit", 4)


async def test_the_projections() -> None:
    result = await play([T("search", "nope"), A()], [search()])
    file = result.ledger
    uses = [msgspec.to_builtins(use) for use in file.tool_calls]
    assert uses[0] == {
        "name": "search",
        "args": {"q": "x"},
        "ok": True,
        "content": "found x",
        "errorCode": None,
    }
    assert (uses[1]["ok"], uses[1]["errorCode"]) == (False, "tool.unknown")
    assert file.phase_path == [
        "assemble",
        "model",
        "route",
        "tools",
        "observe",
        "assemble",
        "model",
        "route",
        "finalize",
        "done",
    ]
    assert (file.elapsed_ms, file.context_reports, file.frames) == (0, [], [])


async def test_a_streamed_file_keeps_its_frames() -> None:
    provider = ChunkedProvider(ScriptedProvider([A("a b c")]), characters=2)
    file = (await play([], provider=provider)).ledger
    assert "".join(frame.get("delta", "") for frame in file.frames) == "a b c"
    assert file.fingerprint == "ed485d24"
    assert parse_ledger(file.serialise()) == file


async def test_a_run_that_goes_on_has_a_file_too() -> None:
    store = MemoryLedgerStore()
    result = await play([T(), A()], [search()], ledger=store)
    cut = MemoryLedgerStore()
    kept = [entry for entry in store.read("run-0001") if entry.seq <= 6]
    cut.append("run-0001", kept, expected=0, sync=True, blobs=store._blobs)
    file = read_run_file(cut, "run-0001")
    assert (file.final_phase, file.outcome, file.finished_at) == (Phase.MODEL, None, None)
    assert file.entries == result.ledger.entries[: len(file.entries)]
    divergence = replay_file(file).divergence
    assert divergence is not None
    assert divergence.kind == "truncated"


@pytest.mark.parametrize("streamed", [False, True])
async def test_s1_a_run_is_played_back_at_its_own_pace(streamed: bool) -> None:
    clock = ManualClock()
    provider: Any = ScriptedProvider([T(say="look", waitMs=300), F(), A("answer", waitMs=50)], clock=clock)
    provider = ChunkedProvider(provider, characters=3) if streamed else provider
    file = (await play([], [search()], provider=provider, clock=clock)).ledger
    again, told = ManualClock(7), list[tuple[int, str, str]]()

    class Noting:
        async def write(self, frame: Any, /) -> bool:
            told.append((again.now_ms() - 7, frame.type, frame.text))
            return True

    sink: Any = Noting()
    assert await playback(file, sink, clock=again) == len(told)
    texts = [(at, text) for at, kind, text in told if kind == "TEXT"]
    if streamed:
        assert texts == [(300, "loo"), (300, "k"), (627, "ans"), (627, "wer")]
    else:
        assert texts == [(300, "look"), (627, "answer")]
    assert [kind for _, kind, _ in told if kind != "TEXT"] == ["TOOL_CALL", "TOOL_RESULT"]
