"""What a person or a program sees of a run, frame by frame."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from agentloop.cli.terminal import line, say, visible
from agentloop.frames import (
    ABORT,
    CYCLE_STARTED,
    ERROR,
    NODE_COMPLETED,
    NODE_FAILED,
    NODE_RETRY,
    SYMBOLIC_ASSERTED,
    TEXT,
    TOOL_CALL,
    TOOL_RESULT,
    TREE_FAILED,
    Frame,
)

__all__ = ("JsonView", "PlainView", "View", "describe")


class View(Protocol):
    """Shows a run."""

    def begin(self, facts: Mapping[str, str]) -> None:
        """Show what is about to run."""

    def frame(self, frame: Frame) -> None:
        """Show one Out frame."""

    def node(self, node_id: str, why: Sequence[str]) -> None:
        """Show which node was chosen, and why."""

    def end(self, facts: Mapping[str, Any], learned: Sequence[str], go_on: Sequence[str]) -> None:
        """Show how it ended, what the memory knows now, and how to go on."""

    def close(self) -> None:
        """Leave the terminal as it was, whatever has happened."""


class JsonView:
    """One JSON object a line, for programs."""

    def begin(self, facts: Mapping[str, str]) -> None:
        self._put({"type": "run", "content": dict(facts)})

    def frame(self, frame: Frame) -> None:
        self._put(frame.to_wire())

    def node(self, node_id: str, why: Sequence[str]) -> None:
        self._put({"type": "node", "content": {"id": node_id, "why": list(why)}})

    def end(self, facts: Mapping[str, Any], learned: Sequence[str], go_on: Sequence[str]) -> None:
        self._put({"type": "result", "content": {**facts, "learned": list(learned)}})

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _put(data: Mapping[str, Any]) -> None:
        # Every character that could act on a terminal is escaped: the output may be one.
        say(json.dumps(data, ensure_ascii=True, separators=(",", ":")))


class PlainView:
    """Plain lines, for pipes, logs and simple terminals; streamed text is gathered into lines."""

    def __init__(self, put: Callable[[str, str], None] | None = None) -> None:
        self._put = put or (lambda style, text: say(text))
        self._role = ""
        self._text: list[str] = []

    def begin(self, facts: Mapping[str, str]) -> None:
        for name, value in facts.items():
            self._put("dim", f"{name:<10} {visible(value)}")

    def frame(self, frame: Frame) -> None:
        if frame.type == TEXT:
            role = str(frame.content.get("role", ""))
            if role != self._role:
                self._flush()
                self._role = role
            self._text.append(frame.text)
            return
        self._flush()
        described = describe(frame)
        if described is not None:
            self._put(*described)

    def _flush(self) -> None:
        text, self._text = "".join(self._text), []
        if text.strip():
            style = "text" if self._role == "agent" else "dim"
            self._put(style, f"  {self._role:<10}{line(text, 400)}")

    def node(self, node_id: str, why: Sequence[str]) -> None:
        self._flush()
        self._put("node", f"node {visible(node_id)}")
        for reason in why:
            self._put("dim", f"  {line(reason)}")

    def end(self, facts: Mapping[str, Any], learned: Sequence[str], go_on: Sequence[str]) -> None:
        self._flush()
        style = {"SUCCESS": "good", "OPEN": "retry"}.get(facts["status"], "bad")
        cycles = f"{facts['iterations']} {'cycle' if facts['iterations'] == 1 else 'cycles'}"
        evidence = f": {line(facts['evidence'])}" if facts.get("evidence") else ""
        self._put(style, f"{facts['status']} after {cycles} ({facts['reason']}){evidence}")
        usage = facts.get("usage") or {}
        tokens = ", ".join(f"{count:,} {line(name, 40)}" for name, count in usage.items())
        self._list("used", [tokens] if tokens else [])
        self._list("warning", facts.get("warnings") or ())
        self._list("learned", learned)
        self._list("go on", go_on)

    def _list(self, name: str, texts: Sequence[str]) -> None:
        for place, text in enumerate(texts):
            self._put("dim", f"{'' if place else name:<10} {line(text, 400)}")

    def close(self) -> None:
        """Nothing is held."""


_SHOWN: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]]] = {
    CYCLE_STARTED: ("cycle", lambda content: f"cycle {content['iteration']}"),
    TOOL_CALL: (
        "tool",
        lambda content: f"  call      {line(str(content.get('name')), 80)}({_arguments(content)})",
    ),
    TOOL_RESULT: ("tool", lambda content: f"  result    {_result(content)}"),
    NODE_RETRY: ("retry", lambda content: f"  retry {content['retry_count']:<3} {_verdict(content)}"),
    NODE_COMPLETED: ("good", lambda content: f"  passed    {_verdict(content)}"),
    NODE_FAILED: ("bad", lambda content: f"  failed    {line(content['evidence'])}"),
    TREE_FAILED: (
        "bad",
        lambda content: f"  ended     {content['reason']} {line(content.get('evidence') or '')}",
    ),
    SYMBOLIC_ASSERTED: ("fact", lambda content: f"  fact      {_fact(content)}"),
    ERROR: (
        "bad",
        lambda content: f"  error     in {content.get('phase')}: {line(str(content.get('message')))}",
    ),
    ABORT: ("bad", lambda content: f"  aborted   {line(str(content['reason']))}"),
}


def describe(frame: Frame) -> tuple[str, str] | None:
    """Return a style and a line for a frame, or None for one that is not shown."""
    row = _SHOWN.get(frame.type)
    return None if row is None else (row[0], row[1](frame.content))


def _arguments(content: Mapping[str, Any]) -> str:
    arguments = content.get("arguments")
    if not isinstance(arguments, Mapping):
        return line(str(content.get("raw_arguments", "")), 100)
    shown = ", ".join(f"{name}={_short(repr(value), 60)}" for name, value in arguments.items())
    return visible(_short(shown, 160))


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _result(content: Mapping[str, Any]) -> str:
    name = line(str(content.get("name")), 80)
    if not content.get("ok"):
        return f"{name} failed: {line(str(content.get('message') or content.get('output')))}"
    code = content.get("exit_code")
    said = str(content.get("stdout") or content.get("output") or "").strip()
    if code is None:
        lines = said.splitlines() or [""]
        more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
        return f"{name} ok  {line(lines[0], 120)}{more}".rstrip()
    # How a command ended is said last, and of what went wrong on stderr.
    wrong = str(content.get("stderr") or "").strip()
    said = (wrong or said) if code else (said or wrong)
    return f"{name} exit {code}  {line(said.splitlines()[-1], 120) if said else ''}".rstrip()


def _verdict(content: Mapping[str, Any]) -> str:
    return f"({content.get('source')}) {line(content.get('evidence') or '')}"


def _fact(content: Mapping[str, Any]) -> str:
    name = line(str(content["name"]), 80)
    return (
        f"{name} retracted" if content["op"] == "retract" else f"{name} = {line(repr(content['value']), 80)}"
    )
