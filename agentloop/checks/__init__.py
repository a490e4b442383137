"""Deterministic checks: what can be decided without asking a model."""

from agentloop.checks.default import DefaultChecks, as_check_report, create_default_deterministic_checks
from agentloop.checks.kinds import CHECKS
from agentloop.checks.trace import ToolTrace, TraceScope, tool_trace_view, trace_entry

__all__ = (
    "CHECKS",
    "DefaultChecks",
    "ToolTrace",
    "TraceScope",
    "as_check_report",
    "create_default_deterministic_checks",
    "tool_trace_view",
    "trace_entry",
)
