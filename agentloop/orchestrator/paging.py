"""Results too long for a model, page by page.

What a model is shown of a result is cut; all of it is on record. Once something was cut, the
run's tools include one more that reads on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentloop._canonical import Json
from agentloop.messages import ToolCall
from agentloop.orchestrator.config import RunConfig
from agentloop.orchestrator.events import ToolExecution
from agentloop.orchestrator.reducer import kept_name, shown_length
from agentloop.orchestrator.registry import ToolHost, ToolRegistry, ToolRun
from agentloop.outcome import Err, Ok, Result, correctable
from agentloop.ports import ToolSpec
from agentloop.tools import Tool

__all__ = ("READ_MORE", "PagedTools")

#: What the tool is called that reads on.
READ_MORE: Final = "read_more"

_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "what the cut result says it is kept as"},
        "offset": {"type": "integer", "minimum": 0, "description": "character to read on from"},
    },
    "required": ["id"],
    "additionalProperties": False,
}


class PagedTools:
    """The tools of a run, and `READ_MORE` once a result was cut. Also a `ToolHost`."""

    def __init__(self, tools: ToolHost, config: RunConfig) -> None:
        self._tools, self._config = tools, config
        self._contents: dict[str, str] = {}
        self._more: ToolRegistry | None = None

    def keep(self, execution: ToolExecution) -> None:
        """Keep a result that the model is not shown whole."""
        content, most = execution.content, shown_length(self._config)
        if most is not None and len(content) > most and execution.call.name != READ_MORE:
            self._contents[kept_name(content)] = content
            if self._more is None and all(spec.name != READ_MORE for spec in self._tools.specs):
                text = "Reads on in a result that was too long to be shown whole."
                tool = Tool(
                    name=READ_MORE, description=text, schema=_SCHEMA, handler=self._read, read_only=True
                )
                self._more = ToolRegistry([tool])

    async def _read(self, id: str, offset: int = 0) -> Result[Json]:
        content = self._contents.get(id)
        if content is None:
            kept = ", ".join(self._contents)
            return Err(correctable("tool.nothing_kept", f"nothing is kept as {id!r:.100}; kept are {kept}"))
        # Room for the line that says where to go on.
        end = offset + max(1, (shown_length(self._config) or len(content)) - 80)
        left = len(content) - end
        more = f"\n[… {left} characters more, from offset {end} …]" if left > 0 else ""
        return Ok(content[offset:end] + more)

    def _owner(self, name: str) -> ToolHost:
        return self._more if self._more is not None and name == READ_MORE else self._tools

    @property
    def specs(self) -> Sequence[ToolSpec]:
        if self._more is None:
            return self._tools.specs
        return (*self._tools.specs, *self._more.specs)

    def read_only(self, name: str, /) -> bool:
        return self._owner(name).read_only(name)

    def accepts_key(self, name: str, /) -> bool:
        return self._owner(name).accepts_key(name)

    def timeout_ms(self, name: str, /) -> int | None:
        return self._owner(name).timeout_ms(name)

    async def invoke(self, call: ToolCall, run: ToolRun, /) -> Result[Json]:
        return await self._owner(call.name).invoke(call, run)
