"""The ``agentloop`` command."""

from agentloop.cli.program import main

__all__ = ("main",)
