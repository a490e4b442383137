"""Tools for a workspace: its files, and a shell in it."""

from __future__ import annotations

from adapters.tools.files import files, files_tools
from adapters.tools.shell import shell, shell_tool

__all__ = ("files", "files_tools", "shell", "shell_tool")
