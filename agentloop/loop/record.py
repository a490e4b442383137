"""What a run writes down: every fact from outside and every decision.

Frames of a turn are gathered and ride in one entry; anything else that is recorded meanwhile
puts them down first, so the order of the ledger is the order of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from agentloop._canonical import Json, encode_text, quote
from agentloop.frames import DONE, TEXT, Frame
from agentloop.ledger.blobs import BLOB_LIMIT
from agentloop.ledger.commits import Commits
from agentloop.ledger.recorder import LEDGER_VERSION, Recorder
from agentloop.loop.cycle import CycleConfig, CycleState, Effect, Emit, Event, event_name
from agentloop.messages import LoopResult

__all__ = ("DRIVER", "OutDigest", "RunRecord", "effect_names")

#: What ``run.opened`` calls this driver.
DRIVER: Final = "agent_loop"
#: More frames of one turn than this are put down in an entry of their own.
_BATCH: Final = 256


def frame_text(frame_type: str, content: Mapping[str, Any]) -> str:
    """Return the canonical JSON of ``[type, content]``; a TEXT of nothing but text is quick."""
    if frame_type == TEXT and len(content) <= 2:
        text, role = content.get("text"), content.get("role")
        if type(text) is str:
            if len(content) == 1:
                return f'["TEXT",{{"text":{quote(text)}}}]'
            if role == "agent" or role == "evaluator":
                return f'["TEXT",{{"role":"{role}","text":{quote(text)}}}]'
    elif frame_type == DONE and not content:
        return '["DONE",{}]'
    return encode_text([frame_type, content])


class OutDigest:
    """Count and running digest of the frames a run has published or is about to."""

    __slots__ = ("_hash", "_waiting", "count")

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()
        self._waiting: list[str] = []

    def copy(self) -> OutDigest:
        """Return a digest that goes on from here."""
        twin = OutDigest()
        twin.count, twin._hash, twin._waiting = self.count, self._hash.copy(), self._waiting[:]
        return twin

    def add(self, frame_type: str, content: Mapping[str, Any]) -> None:
        """Count a frame."""
        self.count += 1
        self._waiting.append(frame_text(frame_type, content))
        if len(self._waiting) == _BATCH:
            self._take_in()

    def _take_in(self) -> None:
        self._hash.update(",".join([*self._waiting, ""]).encode())
        self._waiting.clear()

    def mark(self) -> tuple[int, str]:
        """Return what a step records of it: the count and 16 hexadecimal digits."""
        if self._waiting:
            self._take_in()
        return self.count, self._hash.hexdigest()[:16]


@lru_cache(maxsize=256)
def _step_form(before: str, event: str, after: str, effects: tuple[str, ...]) -> str:
    """Return the canonical JSON of a step with places for n, and the count and digest of ``out``."""
    step = {"effects": effects, "event": event, "from": before, "n": 0, "out": [0, ""], "to": after}
    text = encode_text(step).replace("%", "%%")
    return text.replace('"n":0,"out":[0,""]', '"n":%d,"out":[%d,"%s"]')


def effect_names(effects: Sequence[Emit | str]) -> list[str]:
    """Return what a step records of its effects: the types of frames, and the orders."""
    return [effect.type if type(effect) is Emit else str(effect) for effect in effects]


class RunRecord:
    """Writes one run into a recorder; does nothing, cheaply, without one."""

    __slots__ = (
        "_batch",
        "_closed",
        "_commits",
        "_recorder",
        "_role",
        "_steps",
        "_sync",
        "_turn",
        "on",
        "out",
    )

    def __init__(self, recorder: Recorder | None, *, sync: bool) -> None:
        self._recorder, self._sync = recorder, sync
        #: Whether anything is recorded.
        self.on = recorder is not None
        #: The canonical JSON of the frames that wait for the next entry.
        self._batch: list[str] = []
        self._role, self._turn, self._steps = "agent", 0, 0
        self._commits = None if recorder is None else Commits(recorder, sync=sync)
        #: The last entry stands; what comes from something that was abandoned is too late.
        self._closed = False
        self.out = OutDigest()

    def copy(self) -> RunRecord:
        """Return a record that goes on from here; of the two only one may be committed."""
        twin = RunRecord(None if self._recorder is None else self._recorder.copy(), sync=self._sync)
        twin._batch, twin._steps, twin.out = self._batch[:], self._steps, self.out.copy()
        twin._role, twin._turn, twin._closed = self._role, self._turn, self._closed
        return twin

    def go_on(self, steps: int, out: OutDigest) -> None:
        """Go on after that many steps and those frames."""
        self._steps, self.out = steps, out

    def off(self) -> None:
        """Record nothing any more: the store has failed."""
        self._recorder, self._commits, self.on = None, None, False
        self._batch = []

    def opened(
        self, config: CycleConfig, *, node: Json, labels: Mapping[str, Json], forward: Json, symbolics: Json
    ) -> None:
        if self._recorder is not None:
            data = {
                "version": LEDGER_VERSION,
                "driver": DRIVER,
                "run": self._recorder.run,
                "config": msgspec.structs.asdict(config),
                "forward_frames": forward,
                "symbolics": symbolics,
                "node": node,
                "labels": dict(labels),
            }
            self._recorder.record("run.opened", data)

    def fact(self, kind: str, data: Mapping[str, Json]) -> None:
        """Record a fact, after the frames that came before it."""
        if self._recorder is not None and not self._closed:
            if self._batch:
                self._put_down_frames()
            self._recorder.record(f"fact.{kind}", data)

    def turn_begun(
        self, turn: int, role: str, prompt: Sequence[Frame], *, whole: bool, about: Sequence[Frame] = ()
    ) -> None:
        """Record a prompt: its frames, or their digest if not ``whole``, and what they were made of."""
        self._turn, self._role = turn, role
        if self._recorder is None:
            return
        frames = f"[{','.join([frame_text(frame.type, frame.content) for frame in prompt])}]"
        data: dict[str, Json] = {"role": role, "turn": turn}
        if about:
            data["about"] = [[frame.type, frame.content] for frame in about]
        if not whole:
            data["digest"] = hashlib.sha256(frames.encode()).hexdigest()
            self._recorder.record("fact.prompt", data)
        elif not about and len(frames) <= BLOB_LIMIT and "$blob" not in frames:
            body = f'{{"frames":{frames},"role":"{role}","turn":{turn}}}'
            self._recorder.record_encoded("fact.prompt", body.encode())
        else:
            data["frames"] = [[frame.type, frame.content] for frame in prompt]
            self._recorder.record("fact.prompt", data)

    def frame(self, frame: Frame) -> None:
        """Gather one frame of the current turn."""
        if self._recorder is not None:
            self._batch.append(frame_text(frame.type, frame.content))
            if len(self._batch) >= _BATCH:
                self._put_down_frames()

    def turn_ended(self, *, error: Mapping[str, Json] | None = None) -> None:
        """Record the end of the current turn; its last frames ride in the same entry."""
        if self._recorder is not None:
            before = "" if error is None else f'"error":{encode_text(error)},'
            self._record_turn("fact.turn_ended", before)

    def _put_down_frames(self) -> None:
        if self._batch and self._recorder is not None:
            self._record_turn("fact.frames", "")

    def _record_turn(self, kind: str, before: str) -> None:
        assert self._recorder is not None
        frames = f'"frames":[{",".join(self._batch)}],' if self._batch else ""
        self._batch = []
        # Canonical by construction: the parts are, and the keys are in order.
        body = f'{{{before}{frames}"role":"{self._role}","turn":{self._turn}}}'
        self._recorder.record_encoded(kind, body.encode())

    def step(self, before: CycleState, event: Event, after: CycleState, effects: Sequence[Effect]) -> None:
        """Record a decision; ``out`` stands before the frames it publishes."""
        if self._recorder is None:
            return
        if self._batch:
            self._put_down_frames()
        self._steps += 1
        names = tuple(effect_names(effects))
        form = _step_form(str(before.phase), event_name(event), str(after.phase), names)
        count, digest = self.out.mark()
        # Canonical by construction: all its texts are names of ours, and its keys are in order.
        self._recorder.record_encoded("step", (form % (self._steps, count, digest)).encode())

    def closed(self, result: LoopResult) -> None:
        """Record the end of the run; nothing may follow."""
        if self._recorder is None:
            return
        data: dict[str, Json] = {
            "status": result.status.value,
            "reason": result.reason,
            "iterations": result.iterations,
            "retry_count": result.retry_count,
            "usage": dict(result.usage),
            "out": [*self.out.mark()],
        }
        if result.evidence is not None:
            data["evidence"] = result.evidence
        self._recorder.record("run.closed", data)
        self._closed = True

    async def commit(self) -> None:
        """Hand everything recorded so far to the store; see `Commits`."""
        if self._commits is not None:
            await self._commits()

    def commit_now(self) -> None:
        """As `commit`, on the calling thread."""
        if self._commits is not None:
            self._commits.now()

    def hurry(self) -> None:
        """From now on a commit that does not come back may be left behind."""
        if self._commits is not None:
            self._commits.may_give_up = True
