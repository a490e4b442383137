"""An agent-evaluator loop for behaviour trees on async streams.

An agent works, cheap deterministic checks decide when they can, else an evaluator judges, and
the loop retries until success, failure or a limit. Start with `create_agent_loop`.
"""

from agentloop.checks import CHECKS, create_default_deterministic_checks
from agentloop.determinism import Clock, CounterIds, IdFactory, ManualClock, RunIds, SystemClock
from agentloop.errors import (
    AdapterEnded,
    AgentLoopConfigError,
    AgentLoopError,
    DamagedLedger,
    FrameError,
    IllegalTransition,
    LedgerConflict,
    LedgerError,
    MissingExtra,
    ModelError,
    RunNotFound,
    ScriptExhausted,
    StreamAborted,
    StreamBusy,
    StreamEnded,
    StreamError,
    StreamFailed,
    TaskError,
    TurnError,
    TurnTimeout,
    UnsupportedVersion,
)
from agentloop.factories import create_agent_loop, create_looping_agent_loop
from agentloop.frames import Frame, FrameLike
from agentloop.ledger import Entry, JsonLinesLedgerStore, MemoryLedgerStore, RunLedger
from agentloop.loop.agent import AgentLoop
from agentloop.loop.context import LoopContext
from agentloop.loop.cycle import CYCLE
from agentloop.loop.looping import LoopingAgentLoop
from agentloop.loop.options import LoopOptions, options_from_camel
from agentloop.loop.turns import Prompt, as_adapter
from agentloop.messages import (
    CheckOutcome,
    CheckReport,
    EvaluatorResult,
    LoopResult,
    Message,
    NodeStatus,
    RunOutcome,
    SymbolicUpdate,
    ToolCall,
    ToolError,
    ToolResult,
    Verdict,
)
from agentloop.models import Retry, as_duplex
from agentloop.ports import (
    FrameDuplex,
    FrameStats,
    LedgerEntry,
    LedgerStore,
    ModelCore,
    ModelRequest,
    OutcomeBridge,
    RunIndex,
    RunSummary,
    Sink,
    Source,
    Tap,
    ToolSpec,
)
from agentloop.redact import Redactor, Secret
from agentloop.scripted import ScriptedAdapter
from agentloop.streams import FrameBuffer, duplex_pair
from agentloop.symbolic import SymbolicChange, SymbolicState, create_symbolic_state
from agentloop.tools import Tool, create_tool_adapter_wrapper
from agentloop.verdict import create_default_evaluator_parser

__all__ = (
    "CHECKS",
    "CYCLE",
    "AdapterEnded",
    "AgentLoop",
    "AgentLoopConfigError",
    "AgentLoopError",
    "CheckOutcome",
    "CheckReport",
    "Clock",
    "CounterIds",
    "DamagedLedger",
    "Entry",
    "EvaluatorResult",
    "Frame",
    "FrameBuffer",
    "FrameDuplex",
    "FrameError",
    "FrameLike",
    "FrameStats",
    "IdFactory",
    "IllegalTransition",
    "JsonLinesLedgerStore",
    "LedgerConflict",
    "LedgerEntry",
    "LedgerError",
    "LedgerStore",
    "LoopContext",
    "LoopOptions",
    "LoopResult",
    "LoopingAgentLoop",
    "ManualClock",
    "MemoryLedgerStore",
    "Message",
    "MissingExtra",
    "ModelCore",
    "ModelError",
    "ModelRequest",
    "NodeStatus",
    "OutcomeBridge",
    "Prompt",
    "Redactor",
    "Retry",
    "RunIds",
    "RunIndex",
    "RunLedger",
    "RunNotFound",
    "RunOutcome",
    "RunSummary",
    "ScriptExhausted",
    "ScriptedAdapter",
    "Secret",
    "Sink",
    "Source",
    "StreamAborted",
    "StreamBusy",
    "StreamEnded",
    "StreamError",
    "StreamFailed",
    "SymbolicChange",
    "SymbolicState",
    "SymbolicUpdate",
    "SystemClock",
    "Tap",
    "TaskError",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "TurnError",
    "TurnTimeout",
    "UnsupportedVersion",
    "Verdict",
    "as_adapter",
    "as_duplex",
    "create_agent_loop",
    "create_default_deterministic_checks",
    "create_default_evaluator_parser",
    "create_looping_agent_loop",
    "create_symbolic_state",
    "create_tool_adapter_wrapper",
    "duplex_pair",
    "options_from_camel",
)
