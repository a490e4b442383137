"""Loops set up in a line: scripted turns, verdict texts, and stories to compare frames with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from anyio.lowlevel import checkpoint

from agentloop import (
    AgentLoop,
    Frame,
    FrameDuplex,
    LoopContext,
    MemoryLedgerStore,
    RunLedger,
    ScriptedAdapter,
    Sink,
    Source,
    create_agent_loop,
    create_default_evaluator_parser,
)
from agentloop.ledger import Entry
from agentloop.streams.duplex import turn_duplex

TICK = {"type": "TICK"}
KINDS = ("scripted", "generator", "duplex")


def verdict(status: str, evidence: str = "", updates: object = None) -> str:
    """Return what an evaluator says for this verdict."""
    said: dict[str, Any] = {"status": status, "evidence": evidence}
    if updates is not None:
        said["symbolicUpdates"] = updates
    return json.dumps(said)


def yes(evidence: str = "ok", updates: object = None) -> str:
    return verdict("SUCCESS", evidence, updates)


def no(evidence: str = "bad", updates: object = None) -> str:
    return verdict("FAILURE", evidence, updates)


def more(evidence: str = "more", updates: object = None) -> str:
    return verdict("RUNNING", evidence, updates)


def call(name: str, arguments: object = None, *, id: str | None = "k1", **content: Any) -> Frame:
    """Return the TOOL_CALL frame of a model that asks for a tool."""
    said: dict[str, Any] = {"name": name, **content}
    if id is not None:
        said["id"] = id
    if arguments is not None or "raw_arguments" not in content:
        said["arguments"] = {} if arguments is None else arguments
    return Frame("TOOL_CALL", said)


def loop_options(agent: object, evaluator: object = (), **options: Any) -> dict[str, Any]:
    """Return complete options; lists stand for scripted adapters."""
    defaults: dict[str, Any] = {
        "agent_adapter": ScriptedAdapter(agent) if isinstance(agent, (list, tuple)) else agent,
        "evaluator_adapter": ScriptedAdapter(evaluator)
        if isinstance(evaluator, (list, tuple))
        else evaluator,
        "build_agent_prompt": lambda ctx: "go",
        "build_evaluator_prompt": lambda ctx, history: "judge",
        "parse_evaluator_output": create_default_evaluator_parser(),
    }
    return defaults | options


def make_loop(agent: object, evaluator: object = (), **options: Any) -> AgentLoop:
    return create_agent_loop(**loop_options(agent, evaluator, **options))


async def play(loop: Any) -> list[Frame]:
    """Enter, TICK, read to the end, leave."""
    async with loop:
        await loop.sink.write(TICK)
        return [frame async for frame in loop.source]


async def play_out(agent: object, evaluator: object = (), **options: Any) -> tuple[Any, list[Frame]]:
    loop = make_loop(agent, evaluator, **options)
    return loop, await play(loop)


def short(frame: Frame) -> str:
    """Return the frame's kind as the vectors write it."""
    if frame.type == "TEXT":
        return f"T({str(frame.content.get('role'))[0]})"
    return frame.type.removeprefix("agent_loop:")


def story(frames: Sequence[Frame]) -> list[str]:
    return [short(frame) for frame in frames]


def only(frames: Sequence[Frame], kind: str) -> list[dict[str, Any]]:
    """Return the contents of the frames of one kind."""
    return [frame.content for frame in frames if short(frame) == kind]


def agent_of(kind: str, turns: Sequence[Sequence[Any]]) -> tuple[Any, list[Frame]]:
    """Return an adapter of the kind that plays the turns, and the results it was sent.

    A duplex has to be entered with `serving`.
    """
    if kind == "scripted":
        adapter = ScriptedAdapter(turns)
        return adapter, adapter.results
    results: list[Frame] = []
    left = list(turns)

    async def generator(prompt: Sequence[Frame], ctx: object) -> AsyncIterator[Any]:
        for item in left.pop(0):
            answer = yield item
            results.extend(answer if isinstance(answer, list) else [answer] if answer is not None else [])
            await checkpoint()

    return (generator if kind == "generator" else RealDuplex(generator)), results


class RealDuplex:
    """A turn duplex that the loop cannot call in line: it has to write and read."""

    def __init__(self, function: Callable[..., AsyncIterator[Any]]) -> None:
        self._duplex = turn_duplex(function)
        self.aborts: list[str | None] = []

    @property
    def source(self) -> Source:
        return self._duplex.source

    @property
    def sink(self) -> Sink:
        return self._duplex.sink

    def abort(self, reason: str | None = None, /) -> bool:
        self.aborts.append(reason)
        return self._duplex.abort(reason)

    async def __aenter__(self) -> Self:
        await self._duplex.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None:
        return await self._duplex.__aexit__(exc_type, exc, traceback)

    async def aclose(self) -> None:
        await self._duplex.aclose()


@asynccontextmanager
async def serving(*adapters: object) -> AsyncIterator[None]:
    """Run those of the adapters that are duplexes while the block lasts."""
    async with AsyncExitStack() as stack:
        for adapter in {id(adapter): adapter for adapter in adapters}.values():
            if isinstance(adapter, FrameDuplex):
                await stack.enter_async_context(adapter)
        yield


class Seen:
    """Remembers what a callback was called with."""

    def __init__(self, answer: Any = None) -> None:
        self.calls: list[Any] = []
        self._answer = answer

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments[0] if len(arguments) == 1 else arguments)
        return self._answer(*arguments) if callable(self._answer) else self._answer


class Builder:
    """An agent prompt builder that remembers what the context said each time."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.seen: list[Any] = []

    def __call__(self, ctx: LoopContext) -> str:
        values = tuple(ctx[name] for name in self.names)
        self.seen.append(values[0] if len(values) == 1 else values)
        return "go"


class CountingStore(MemoryLedgerStore):
    """Remembers the kinds of entries of each append; fails at the n-th one if told so."""

    def __init__(self, *, fail_at: int | None = None) -> None:
        super().__init__()
        self.appends: list[tuple[list[str], bool]] = []
        self.fail_at = fail_at

    def append(self, run: str, entries: Any, /, **options: Any) -> Any:
        if self.fail_at is not None and len(self.appends) + 1 >= self.fail_at:
            raise OSError("no space left on device")
        head = super().append(run, entries, **options)
        self.appends.append(([entry.kind for entry in entries], options["sync"]))
        return head


def entries_of(store: MemoryLedgerStore, run: str) -> list[Entry]:
    return list(RunLedger(store, run).entries())


def kinds_of(store: MemoryLedgerStore, run: str) -> list[str]:
    return [entry.kind for entry in entries_of(store, run)]
