"""Showing a recorded run again, as it was seen, at its own pace."""

from __future__ import annotations

from agentloop.determinism import Clock, SystemClock
from agentloop.orchestrator.events import ModelFrames, event_name
from agentloop.orchestrator.ledger import RunFile
from agentloop.orchestrator.recording import shown_frames
from agentloop.ports import Sink

__all__ = ("playback",)


async def playback(file: RunFile, sink: Sink, *, clock: Clock | None = None) -> int:
    """Write what the models and tools of a run said to a sink, and return how many frames.

    Each comes as long after the beginning as it came then; the clock says how fast that is.
    """
    clock = clock or SystemClock()
    begun_ms = clock.monotonic_ms()
    written, streamed = 0, False
    for entry in file.entries:
        for frame in shown_frames(entry.event, streamed=streamed):
            await clock.sleep_until(begun_ms + entry.at - file.started_at)
            await sink.write(frame)
            written += 1
        if isinstance(entry.event, ModelFrames):
            streamed = True
        elif event_name(entry.event).startswith("model."):
            streamed = False
    return written
