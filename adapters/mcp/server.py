"""The server: answers requests of the protocol from the desk. Transports are elsewhere."""

from __future__ import annotations

import difflib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from adapters.mcp.desk import Desk
from adapters.mcp.resources import RESOURCES, WORKFLOW, find_resource
from adapters.mcp.tools import Tool

__all__ = ("build_server",)


def build_server(desk: Desk) -> Server[Any]:
    """Return a server that offers what the desk has."""
    handlers = _Handlers(desk)
    return Server(
        "adaptogen",
        version=_version(),
        instructions=WORKFLOW,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )


def _version() -> str:
    try:
        return version("loopwright")
    except PackageNotFoundError:  # run from a folder, without being installed
        return ""


class _Handlers:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tools = [_shown(tool) for tool in desk.tools.values()]

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self._desk.tools:
            raise MCPError(code=types.INVALID_PARAMS, message=self._unknown(params.name))
        answer = await self._desk.call(params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)],
            structured_content=answer.structured,
            is_error=answer.failed,
        )

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name[:100], list(self._desk.tools), 1)
        return f"there is no tool {name!r:.100}" + (f"; did you mean {near[0]}?" if near else "")

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=each.address, name=each.name, description=each.description, mime_type=each.mime_type
                )
                for each in RESOURCES
                if not each.is_family
            ]
        )

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=each.address,
                    name=each.name,
                    description=each.description,
                    mime_type=each.mime_type,
                )
                for each in RESOURCES
                if each.is_family
            ]
        )

    async def read_resource(
        self, ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        address = str(params.uri)
        found = find_resource(address)
        if found is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no resource {address!r:.200}")
        answer = await self._desk.read(*found)
        if answer.failed:
            told = dict(answer.structured)
            raise MCPError(code=types.INTERNAL_ERROR, message=str(told["message"]), data=told)
        contents = types.TextResourceContents(uri=address, mime_type=found[0].mime_type, text=answer.text)
        return types.ReadResourceResult(contents=[contents])


def _shown(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.schema),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.reads,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.reads,
            open_world_hint=False,
        ),
    )
