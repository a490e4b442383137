"""What happened in earlier cycles, as prompt builders see it.

Entries are frozen once and shared, so showing ten thousand of them costs no more than
showing one: nothing is copied. They are still dicts and lists to whoever reads or prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from agentloop.loop.turns import TurnFold

__all__ = ("FrozenDict", "FrozenList", "History", "freeze", "turn_entry")


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(f"the history is read-only: copy the {type(self).__name__} before changing it")


class FrozenDict(dict[str, Any]):
    """A dict that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse


class FrozenList(list[Any]):
    """A list that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = _refuse
    insert = pop = remove = reverse = sort = _refuse


class History(FrozenList):
    """The entries of a run, oldest first; grows while the run goes on.

    One entry a cycle: ``{iteration, agent_text, tool_calls, tool_results, empty, truncated,
    checks, evaluation}``; the last two are None until they are known.
    """

    __slots__ = ()

    def add(self, entry: dict[str, Any]) -> None:
        """Append an entry, frozen. For the loop only."""
        list.append(self, freeze(entry))

    def amend(self, **values: Any) -> None:
        """Replace the newest entry by one with these values. For the loop only."""
        list.__setitem__(
            self, -1, FrozenDict({**self[-1], **{key: freeze(item) for key, item in values.items()}})
        )


_SHOWN = ("call_id", "name", "ok", "output", "stdout", "stderr", "exit_code", "error")


def turn_entry(iteration: int, fold: TurnFold, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the history keeps of an agent's turn and its tool results."""
    calls = [{"id": one["call_id"], "name": one["name"], "arguments": one["arguments"]} for one in results]
    return {
        "iteration": iteration,
        "agent_text": fold.text,
        "tool_calls": calls,
        "tool_results": [_shown(one) for one in results],
        "empty": fold.empty,
        "truncated": fold.truncated,
        "checks": None,
        "evaluation": None,
    }


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: result[name] for name in _SHOWN if result[name] is not None}
    return {**shown, "timed_out": True} if result["timed_out"] else shown


_CONTAINERS = frozenset({dict, list, tuple})


def freeze(value: Any) -> Any:
    """Return the value with every dict and list in it refusing changes."""
    kind = type(value)
    if kind is dict:
        return FrozenDict(
            {key: freeze(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
        )
    if kind is list or kind is tuple:
        return FrozenList([freeze(item) if type(item) in _CONTAINERS else item for item in value])
    return value
