"""The `adaptogen` command: a thin shell over the facade."""

from __future__ import annotations

from graphstate.cli.program import main

__all__ = ("main",)
