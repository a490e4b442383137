"""The constructors that users call, with their options spelled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import msgspec

from agentloop._numbers import check_count
from agentloop.loop.agent import AgentLoop
from agentloop.loop.options import LoopOptions

if TYPE_CHECKING:
    from agentloop.loop.looping import LoopingAgentLoop
    from agentloop.loop.resumption import Resumption

__all__ = ("create_agent_loop", "create_looping_agent_loop", "go_on", "split_looping_options")

P = ParamSpec("P")


def _taking(options: Callable[P, object]) -> Callable[[Callable[..., AgentLoop]], Callable[P, AgentLoop]]:
    """Give a factory the signature of the options it takes, so that they are written down once."""
    return lambda factory: factory


def _names(options: type[msgspec.Struct]) -> tuple[str, ...]:
    return options.__struct_fields__


_LOOP: Final = _names(LoopOptions)


def _refuse_unknown(function: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            import difflib  # for a message nobody should have to see

            near = difflib.get_close_matches(name, known, 1, cutoff=0.4)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function} has no option {name!r}{hint}")


@_taking(LoopOptions)
def create_agent_loop(**options: Any) -> AgentLoop:
    """Return a loop: an agent works, cheap checks or an evaluator judge, until it is done.

    The loop is a duplex that serves one run. Enter it with ``async with``, write
    ``{"type": "TICK"}`` to its sink and read its source; or ``await loop.run()``. All options
    are keywords; `LoopOptions` documents each of them with its default.

    Raises:
        AgentLoopConfigError: An adapter, a prompt builder or the parser is missing.
        TypeError: An option is unknown or has the wrong type.
        ValueError: A number is out of range, or a word is none of the legal ones.
    """
    resumption = options.pop("resumption", None)  # a looping run that is resumed hands it to its factory
    _refuse_unknown("create_agent_loop", options, _LOOP)
    return AgentLoop(LoopOptions(**options)) if resumption is None else go_on(resumption, options)


def go_on(resumption: Resumption, options: Mapping[str, Any]) -> AgentLoop:
    """Return a loop that goes on where a recorded run stands; what the record decides stays so."""
    _refuse_unknown("resume", dict(options), _LOOP)
    decided = {**resumption.recorded_options(), "initial_symbolics": {}}
    return AgentLoop(LoopOptions(**{**options, **decided}), resumption=resumption)


def create_looping_agent_loop(
    *,
    inner_loop_factory: Callable[..., Any] | None = None,
    inner_max_iterations: int | None = None,
    **options: Any,
) -> LoopingAgentLoop:
    """Return a loop of loops: one inner loop per node, while ``should_continue`` says so.

    Args:
        inner_loop_factory: Makes each inner loop; `create_agent_loop` if not given.
        inner_max_iterations: The cycles of each inner loop; ``max_iterations`` is the number
            of inner loops.
        **options: ``should_continue(result, index)`` (default: never), ``node_provider``
            (a function of the index, sync or async, or an iterable; None ends the run),
            ``max_iterations`` (10), ``on_progress``, ``share_symbolics`` (True), the buffer
            options, ``ledger``, ``run_id``, ``labels``, ``raise_errors``; everything else
            goes to every inner loop.

    Raises:
        AgentLoopConfigError: An adapter, a prompt builder or the parser is missing.
        TypeError: An option is unknown or has the wrong type.
        ValueError: A number is out of range.

    What a factory of your own is given is checked by that factory, when it is called.
    """
    # A run of one loop, which is what most are, does not pay for this.
    from agentloop.loop.looping import LoopingAgentLoop, LoopingOptions

    given = {**options, "inner_max_iterations": inner_max_iterations}
    if inner_loop_factory is not None:
        given["inner_loop_factory"] = inner_loop_factory
    outer, inner = split_looping_options(given)
    return LoopingAgentLoop(LoopingOptions(**outer, inner_options=inner))


def split_looping_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the outer options of a looping run and those of its inner loops, checked."""
    from agentloop.loop.looping import LoopingOptions

    # Outer options have their own meaning here, and are not handed to inner loops.
    known = tuple(name for name in _names(LoopingOptions) if name != "inner_options")
    inner = dict(options)
    inner_max_iterations = inner.pop("inner_max_iterations", None)
    outer = {name: inner.pop(name) for name in known if name in inner}
    own = "inner_loop_factory" not in outer
    if own:
        outer["inner_loop_factory"] = create_agent_loop
        _refuse_unknown("create_looping_agent_loop", inner, _LOOP + known)
    check_count("max_iterations", outer.get("max_iterations", 10), 0)
    if inner_max_iterations is not None:
        inner["max_iterations"] = inner_max_iterations
    if own:
        LoopOptions(**inner)  # raises now what every inner loop would raise later
    return outer, inner
