"""An agent-evaluator loop for behaviour trees on async streams.

An agent works, cheap deterministic checks decide when they can, else an evaluator judges, and
the loop retries until success, failure or a limit. Start with `create_agent_loop`.

Names are imported on first use, so that a command that lists runs does not pay for what runs them.
"""

from __future__ import annotations

from agentloop._lazy import on_first_use

#: Where each public name lives; `__init__.pyi` says the same to type checkers.
_HOMES = {
    "agentloop.checks": (
        "CHECKS",
        "create_default_deterministic_checks",
    ),
    "agentloop.determinism": (
        "Clock",
        "CounterIds",
        "IdFactory",
        "ManualClock",
        "RunIds",
        "SystemClock",
    ),
    "agentloop.errors": (
        "AdapterEnded",
        "AgentLoopConfigError",
        "AgentLoopError",
        "BoundExceeded",
        "DamagedLedger",
        "FrameError",
        "IllegalTransition",
        "LedgerConflict",
        "LedgerError",
        "LedgerUnavailable",
        "MissingExtra",
        "ModelError",
        "ResumeError",
        "RunNotFound",
        "ScriptExhausted",
        "StreamAborted",
        "StreamBusy",
        "StreamEnded",
        "StreamError",
        "StreamFailed",
        "SymbolicRefused",
        "TaskError",
        "TurnError",
        "TurnTimeout",
        "UnsupportedVersion",
    ),
    "agentloop.factories": (
        "create_agent_loop",
        "create_looping_agent_loop",
    ),
    "agentloop.frames": (
        "Frame",
        "FrameLike",
    ),
    "agentloop.ledger": (
        "Entry",
        "JsonLinesLedgerStore",
        "MemoryLedgerStore",
        "RunLedger",
    ),
    "agentloop.loop.agent": ("AgentLoop",),
    "agentloop.loop.context": ("LoopContext",),
    "agentloop.loop.cycle": ("CYCLE",),
    "agentloop.loop.looping": ("LoopingAgentLoop",),
    "agentloop.loop.options": (
        "LoopOptions",
        "options_from_camel",
    ),
    "agentloop.loop.turns": (
        "Prompt",
        "as_adapter",
    ),
    "agentloop.messages": (
        "CheckOutcome",
        "CheckReport",
        "EvaluatorResult",
        "LoopResult",
        "Message",
        "NodeStatus",
        "RunOutcome",
        "SymbolicUpdate",
        "ToolCall",
        "ToolError",
        "ToolResult",
        "Verdict",
    ),
    "agentloop.models": (
        "Retry",
        "as_duplex",
    ),
    "agentloop.ports": (
        "FrameDuplex",
        "FrameStats",
        "LedgerEntry",
        "LedgerStore",
        "ModelCore",
        "ModelRequest",
        "OutcomeBridge",
        "RunIndex",
        "RunSummary",
        "Sink",
        "Source",
        "Tap",
        "ToolSpec",
    ),
    "agentloop.redact": (
        "Redactor",
        "Secret",
    ),
    "agentloop.replays": (
        "Divergence",
        "ReplayReport",
        "replay",
    ),
    "agentloop.resumes": (
        "fork",
        "resume",
    ),
    "agentloop.scripted": (
        "Expect",
        "ScriptedAdapter",
        "Sleep",
    ),
    "agentloop.streams": (
        "BufferDuplex",
        "BufferSink",
        "BufferSource",
        "FrameBuffer",
        "PipeOwner",
        "Through",
        "TurnDuplex",
        "TurnFunction",
        "as_aiter",
        "as_object_stream",
        "chunks",
        "duplex_pair",
        "filter_frames",
        "from_aiostream",
        "from_aiter",
        "from_object_streams",
        "map_frames",
        "merge",
        "only",
        "pipeline",
        "source_owner",
        "take",
        "tee",
        "timeout",
        "to_aiostream",
        "turn_duplex",
        "zip",
    ),
    "agentloop.symbolic": (
        "SymbolicChange",
        "SymbolicState",
        "create_symbolic_state",
    ),
    "agentloop.tools": (
        "Tool",
        "create_tool_adapter_wrapper",
    ),
    "agentloop.verdict": ("create_default_evaluator_parser",),
}

__all__, __getattr__, __dir__ = on_first_use(__name__, _HOMES)
