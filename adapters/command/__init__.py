"""Any command-line agent as an adapter: the prompt on its input, its output as frames."""

from __future__ import annotations

from adapters.command.agent import CommandAgent, command_adapter, create_command_adapter

__all__ = ("CommandAgent", "command_adapter", "create_command_adapter")
