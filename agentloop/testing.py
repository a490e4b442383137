"""What tests of loops need: a scripted adapter, a clock that stands still, a way to write a run down."""

from __future__ import annotations

from agentloop.determinism import CounterIds, ManualClock
from agentloop.scripted import Expect, ScriptedAdapter, Sleep, load_script, script_turns

__all__ = (
    "CounterIds",
    "Expect",
    "ManualClock",
    "ScriptedAdapter",
    "Sleep",
    "load_script",
    "script_turns",
)
