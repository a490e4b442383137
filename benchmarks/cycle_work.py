"""The work every loop figure measures, and the same written by hand as its floor.

One cycle: the agent is called and streams two texts, one deterministic check fails, the
evaluator is called, its verdict is parsed, and it routes to the next cycle. The models are
fakes that answer at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from agentloop import AgentLoop, Frame, MemoryLedgerStore, create_agent_loop, create_default_evaluator_parser
from agentloop.streams import BufferDuplex, duplex_pair

VERDICT = '{"status": "RUNNING", "evidence": "not there yet", "symbolicUpdates": []}'
DONE = Frame("DONE", {})


def agent_frames() -> list[Frame]:
    return [Frame("TEXT", {"text": "working on it, "}), Frame("TEXT", {"text": "done with part one"}), DONE]


def evaluator_frames() -> list[Frame]:
    return [Frame("TEXT", {"text": VERDICT}), DONE]


async def agent_turn(prompt: Any, ctx: Any) -> AsyncIterator[Frame]:
    for frame in agent_frames():
        yield frame


async def evaluator_turn(prompt: Any, ctx: Any) -> AsyncIterator[Frame]:
    for frame in evaluator_frames():
        yield frame


def failing_check(checks: list[str], trace: object) -> tuple[bool, str]:
    return False, "FAIL exit_code:0: no tool result"


def make_loop(agent: Any, evaluator: Any, cycles: int, **options: Any) -> AgentLoop:
    return create_agent_loop(
        agent_adapter=agent,
        evaluator_adapter=evaluator,
        build_agent_prompt=lambda ctx: "do the next part",
        build_evaluator_prompt=lambda ctx, history: f"judge: {history[-1]['agent_text']}",
        parse_evaluator_output=create_default_evaluator_parser(),
        deterministic_checks=failing_check,
        checks_list=["exit_code:0"],
        max_retries=0,
        max_iterations=cycles,
        **{"on_progress": lambda kind, data: None, **options},
    )


async def _run_read(loop: AgentLoop) -> None:
    """Run the loop as a duplex: somebody reads every frame it emits."""
    async with loop:
        await loop.sink.write(Frame("TICK", {}))
        async for _ in loop.source:
            pass


def in_line(cycles: int, **options: Any) -> Callable[[], Any]:
    """Adapters that never suspend: async generators the loop pulls."""

    async def work() -> None:
        ledger = options.get("ledger") or MemoryLedgerStore()
        await _run_read(make_loop(agent_turn, evaluator_turn, cycles, **{**options, "ledger": ledger}))

    return work


async def _duplex_adapter(duplex: BufferDuplex, frames: Callable[[], list[Frame]]) -> None:
    write = duplex.sink.write
    async for _ in duplex.source:
        for frame in frames():
            await write(frame)


def with_tasks(cycles: int, **options: Any) -> Callable[[], Any]:
    """Adapters that are real duplexes, each with a task of its own."""

    async def work() -> None:
        ledger = options.get("ledger") or MemoryLedgerStore()
        (agent, agent_side), (judge, judge_side) = duplex_pair(), duplex_pair()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_duplex_adapter, agent_side, agent_frames)
            tasks.start_soon(_duplex_adapter, judge_side, evaluator_frames)
            await _run_read(make_loop(agent, judge, cycles, **{**options, "ledger": ledger}))
            tasks.cancel_scope.cancel()
        for duplex in (agent, agent_side, judge, judge_side):
            await duplex.aclose()

    return work


async def _serve(
    prompts: MemoryObjectReceiveStream[Frame],
    out: MemoryObjectSendStream[Frame],
    frames: Callable[[], list[Frame]],
) -> None:
    async for _ in prompts:
        for frame in frames():
            await out.send(frame)


class HandLedger:
    """Three hashed events a cycle, written by hand: canonical JSON, SHA-256, one chain."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        self._head = bytes(32)

    def add(self, event: dict[str, Any]) -> None:
        body = json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
        self._head = hashlib.sha256(self._head + body).digest()
        self.rows.append((body, self._head))


def naive(
    cycles: int, ledger: HandLedger | None = None, commit: Callable[[HandLedger], None] | None = None
) -> Any:
    """The floor: the same duplex on anyio memory streams, one send and one receive a frame.

    Two adapter tasks, a driver, a reader of the output; three hashed events a cycle.
    """

    async def read(stream: MemoryObjectReceiveStream[Frame]) -> None:
        async for _ in stream:
            pass

    async def work() -> None:
        book = ledger or HandLedger()
        history: list[dict[str, Any]] = []
        ends = [anyio.create_memory_object_stream[Frame](64) for _ in range(5)]
        (to_agent, agent_in), (agent_out, from_agent), (to_judge, judge_in), (judge_out, from_judge), out = (
            ends
        )

        async def ask(send: Any, receive: Any, text: str) -> str:
            await send.send(Frame("TEXT", {"text": text}))
            texts: list[str] = []
            while (frame := await receive.receive()).type != "DONE":
                await out[0].send(frame)
                texts.append(frame.text)
            return "".join(texts)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve, agent_in, agent_out, agent_frames)
            tasks.start_soon(_serve, judge_in, judge_out, evaluator_frames)
            tasks.start_soon(read, out[1])
            for cycle in range(1, cycles + 1):
                text = await ask(to_agent, from_agent, "do the next part")
                book.add({"type": "agent", "cycle": cycle, "text": text})
                await out[0].send(Frame("agent_loop:node_started", {"iteration": cycle, "agent_text": text}))
                passed, evidence = failing_check(["exit_code:0"], ())
                book.add({"type": "checks", "cycle": cycle, "passed": passed, "evidence": evidence})
                verdict = json.loads(await ask(to_judge, from_judge, f"judge: {text}"))
                book.add({"type": "verdict", "cycle": cycle, **verdict})
                history.append({"iteration": cycle, "agent_text": text, "evidence": evidence})
                if commit is not None:
                    commit(book)
                if verdict["status"] == "SUCCESS":
                    break
                await out[0].send(
                    Frame("agent_loop:node_retry", {"evidence": evidence, "retry_count": cycle})
                )
            tasks.cancel_scope.cancel()
        for send, receive in ends:
            send.close()
            receive.close()

    return work


def plain(cycles: int) -> Callable[[], Any]:
    """The limit: the same written as one coroutine, with no streams at all."""

    async def call(frames: Callable[[], list[Frame]]) -> str:
        return "".join(frame.text for frame in frames())

    async def work() -> None:
        ledger: list[dict[str, Any]] = []
        for cycle in range(1, cycles + 1):
            text = await call(agent_frames)
            _, evidence = failing_check(["exit_code:0"], ())
            verdict = json.loads(await call(evaluator_frames))
            ledger.append({"cycle": cycle, "text": text, "evidence": evidence, "status": verdict["status"]})

    return work


def plain_recorded(cycles: int, commit: Callable[[HandLedger], None]) -> Callable[[], Any]:
    """The floor of what is durable: one coroutine, three hashed events and one commit a cycle."""

    async def call(frames: Callable[[], list[Frame]]) -> str:
        return "".join(frame.text for frame in frames())

    async def work() -> None:
        book = HandLedger()
        for cycle in range(1, cycles + 1):
            text = await call(agent_frames)
            book.add({"type": "agent", "cycle": cycle, "text": text})
            passed, evidence = failing_check(["exit_code:0"], ())
            book.add({"type": "checks", "cycle": cycle, "passed": passed, "evidence": evidence})
            verdict = json.loads(await call(evaluator_frames))
            book.add({"type": "verdict", "cycle": cycle, **verdict})
            commit(book)

    return work
