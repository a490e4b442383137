"""An adapter that says what it was told to say.

It stands in for a model in tests, examples, evals and replays. Its turns are given in Python,
or read from a file in the one format that scripted tasks share.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, get_args

import anyio

from agentloop._canonical import Json, NotJson, decode
from agentloop._numbers import check_duration
from agentloop.errors import ErrorClass, ModelError, ScriptExhausted, TaskError
from agentloop.frames import DONE, TEXT, TOOL_CALL, TOOL_RESULT, USAGE, Frame, FrameLike

__all__ = ("Expect", "ScriptItem", "ScriptedAdapter", "Sleep", "load_script", "read_script", "script_turns")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait that many milliseconds before the next item."""

    duration_ms: int

    def __post_init__(self) -> None:
        check_duration("duration_ms", self.duration_ms, zero=True)


@dataclass(frozen=True, slots=True)
class Expect:
    """Demand that the newest frame the adapter was sent has this type and these content items."""

    type: str = TOOL_RESULT
    content: Mapping[str, Any] = field(default_factory=dict)


#: A frame (or what stands for one), an exception to raise, a wait, or an expectation. A list
#: of TOOL_CALL frames is asked for at once.
ScriptItem: TypeAlias = FrameLike | BaseException | Sleep | Expect | Sequence[FrameLike]


class ScriptedAdapter:
    """Plays one turn of its script each time it is asked.

    Attributes:
        prompts: The prompt frames of each turn that was begun.
        results: Every TOOL_RESULT frame it was sent.
        aborts: The reasons it was aborted with.
    """

    def __init__(self, turns: Sequence[Sequence[ScriptItem] | ScriptItem]) -> None:
        self._turns = [_items(turn) for turn in turns]
        self.prompts: list[tuple[Frame, ...]] = []
        self.results: list[Frame] = []
        self.aborts: list[str | None] = []

    @property
    def turns_left(self) -> int:
        """How many turns of the script have not been begun."""
        return max(0, len(self._turns) - len(self.prompts))

    def skip(self, turns: int) -> None:
        """Leave out turns that were played before a run was resumed."""
        self.prompts += [()] * turns

    def abort(self, reason: str | None = None) -> bool:
        self.aborts.append(reason)
        return len(self.aborts) == 1

    async def turn(
        self, prompt: Sequence[Frame], ctx: object = None
    ) -> AsyncGenerator[Frame | list[Frame], Frame | list[Frame] | None]:
        """Yield the items of the next turn, then DONE if the script did not say so itself.

        Raises:
            ScriptExhausted: There is no next turn.
            AssertionError: An `Expect` did not hold.
        """
        self.prompts.append(tuple(prompt))
        if len(self.prompts) > len(self._turns):
            raise ScriptExhausted(len(self._turns), len(self.prompts))
        newest: Frame | None = prompt[-1] if prompt else None
        for item in self._turns[len(self.prompts) - 1]:
            if isinstance(item, Sleep):
                await anyio.sleep(item.duration_ms / 1000)
            elif isinstance(item, Expect):
                _demand(item, newest)
            elif isinstance(item, BaseException):
                raise item
            else:
                answer = yield ([*item] if isinstance(item, list) else item)
                for frame in answer if isinstance(answer, list) else [answer]:
                    if frame is not None:
                        self.results.append(frame)
                        newest = frame
        yield Frame(DONE, {})


_Item: TypeAlias = Frame | BaseException | Sleep | Expect | list[Frame]


def _items(turn: Sequence[ScriptItem] | ScriptItem) -> list[_Item]:
    if isinstance(turn, (str, Mapping, Frame, BaseException, Sleep, Expect)):
        turn = [turn]
    items: list[_Item] = []
    for item in turn:
        if isinstance(item, (BaseException, Sleep, Expect)):
            items.append(item)
        elif isinstance(item, Sequence) and not isinstance(item, str):
            items.append([Frame.of(frame) for frame in item])
        else:
            items.append(Frame.of(item))
    return items


def _demand(expected: Expect, frame: Frame | None) -> None:
    if frame is None or frame.type != expected.type:
        raise AssertionError(f"the script expected a {expected.type}, got {frame!r}")
    for key, value in expected.content.items():
        if frame.content.get(key) != value:
            raise AssertionError(
                f"the script expected {expected.type} with {key}={value!r}, got {frame.content.get(key)!r}"
            )


# --------------------------------------------------------------------------------- from files


def load_script(path: Path) -> list[list[ScriptItem]]:
    """Read the turns of a script file; see `script_turns` for the format.

    Raises:
        TaskError: The file is missing, is not JSON, or an entry has the wrong form.
    """
    data = _load(path)
    try:
        return script_turns(data)
    except TaskError as error:
        raise TaskError(f"the script {path}: {error}") from None


def _load(path: Path) -> Json:
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise TaskError(f"the script {path} cannot be read: {error.strerror}") from error
    except NotJson as error:
        raise TaskError(f"the script {path} is not JSON: {error}") from error


def read_script(script: Path | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the model calls of a script, checked; see `script_turns` for the format.

    Raises:
        TaskError: The file is missing, is not JSON, or an entry has the wrong form.
    """
    if isinstance(script, Path):
        try:
            return _calls_of(_load(script))
        except TaskError as error:
            raise TaskError(f"the script {script}: {error}") from None
    return _calls_of([dict(call) for call in script])


_CALL_KEYS = {
    "say": str,
    "callTools": list,
    "usage": dict,
    "stopReason": str,
    "failWith": dict,
    "waitMs": int,
}


def script_turns(data: Json) -> list[list[ScriptItem]]:
    """Return the turns that recorded model calls stand for.

    The data is ``{"calls": [...]}`` or the list itself. Each entry is one model call:
    ``{"say": text, "callTools": [{"name", "args"}], "usage": {...}, "stopReason": text}`` or
    ``{"failWith": {"class", "code", "message"}}``; with ``waitMs`` it takes that long. A call that asks for tools is followed by
    the next entry within the same turn; one that does not ends its turn.

    Raises:
        TaskError: Not of that form; names the entry.
    """
    turns: list[list[ScriptItem]] = []
    open_turn = False
    for number, call in enumerate(_calls_of(data), 1):
        if not open_turn:
            turns.append([])
        tool_calls = _tool_calls(call, number)
        turns[-1] += _call_items(call, number, tool_calls)
        open_turn = bool(tool_calls)
    return turns


def _calls_of(data: Json) -> list[dict[str, Any]]:
    calls = data.get("calls") if isinstance(data, dict) else data
    if not isinstance(calls, list):
        raise TaskError("a script is a list of model calls, or an object whose 'calls' is one")
    for number, call in enumerate(calls, 1):
        if not isinstance(call, dict) or not call or not call.keys() <= _CALL_KEYS.keys():
            raise TaskError(
                f"call {number} is an object with some of {', '.join(sorted(_CALL_KEYS))}: {call!r:.120}"
            )
        for name, value in call.items():
            if not isinstance(value, _CALL_KEYS[name]) or isinstance(value, bool):
                words = {str: "a text", list: "a list", dict: "an object", int: "a whole number"}
                raise TaskError(f"call {number}: {name!r} is {words[_CALL_KEYS[name]]}, not {value!r:.120}")
        _tool_calls(call, number)
    return calls


def _tool_calls(call: Mapping[str, Json], number: int) -> list[FrameLike]:
    frames: list[FrameLike] = []
    for position, item in enumerate(call.get("callTools") or (), 1):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise TaskError(f"call {number}, tool {position}: a tool call needs a 'name': {item!r:.120}")
        if not isinstance(item.get("args", {}), dict):
            raise TaskError(f"call {number}, tool {position}: 'args' is an object, not {item['args']!r:.120}")
        content = {"id": f"call-{number:02d}-{position:02d}", "name": item["name"]}
        frames.append(Frame(TOOL_CALL, {**content, "arguments": copy.deepcopy(item.get("args") or {})}))
    return frames


def _call_items(call: Mapping[str, Json], number: int, tool_calls: list[FrameLike]) -> list[ScriptItem]:
    items: list[ScriptItem] = [Sleep(call["waitMs"])] if call.get("waitMs") else []
    if failure := call.get("failWith"):
        error_class = failure.get("class", "fatal")
        if error_class not in get_args(ErrorClass):
            known = ", ".join(get_args(ErrorClass))
            raise TaskError(
                f"call {number}: the 'class' of a failure is one of {known}, not {error_class!r:.120}"
            )
        message, code = failure.get("message", "scripted failure"), failure.get("code", "scripted.failed")
        return [*items, ModelError(str(message), error_class=error_class, code=str(code))]
    if say := call.get("say"):
        items.append(Frame(TEXT, {"text": str(say)}))
    if usage := call.get("usage"):
        items.append(Frame(USAGE, {_USAGE_NAMES.get(name, name): count for name, count in usage.items()}))
    if tool_calls:
        items.append(tool_calls)
    else:
        items.append(Frame(DONE, {"finish_reason": call.get("stopReason", "end_turn")}))
    return items


_USAGE_NAMES = {"promptTokens": "input_tokens", "completionTokens": "output_tokens"}
