"""A graph as a server of the Model Context Protocol: `adaptogen mcp` serves one file.

Needs the extra ``mcp``. `serve` is what the command calls, found by the entry point ``mcp`` of the
group ``graphstate.servers``; `all_tools` lists what is offered.
"""

from __future__ import annotations

from adapters.mcp.program import serve
from adapters.mcp.tools import Tool, all_tools

__all__ = ("Tool", "all_tools", "serve")
