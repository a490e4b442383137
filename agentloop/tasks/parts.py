"""The parts a task names: adapters, tools, ledgers and memories, found by entry point.

So nothing here imports an adapter, and a package of anybody's can add one.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

import msgspec

from agentloop._canonical import Json, encode_text
from agentloop.errors import AgentLoopConfigError, AgentLoopError, TaskError
from agentloop.frames import TEXT, Frame
from agentloop.loop.context import LoopContext
from agentloop.loop.turns import AdapterLike
from agentloop.models import AdapterContext, read_options
from agentloop.modules import load_file
from agentloop.scripted import ScriptedAdapter, load_script
from agentloop.tasks.file import RoleSpec

__all__ = ("find_part", "make_adapter", "scripted_adapter")

_PYTHON: Final = "python:"


@cache
def _group(group: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"agentloop.{group}")}


def find_part(group: str, name: str) -> Any:
    """Return what an installed package offers under a name, as ``find_part("adapters", "openai")``.

    Raises:
        TaskError: There is none; names the nearest one.
    """
    points = _group(group)
    if name not in points:
        near = difflib.get_close_matches(name, list(points), 1, cutoff=0.5)
        known = ", ".join(sorted(points)) or "none: is the package installed?"
        hint = f"did you mean {near[0]!r}?" if near else f"installed are {known}"
        raise TaskError(f"no {group[:-1]} is called {name!r}: {hint}")
    return points[name].load()


def make_adapter(role: str, spec: RoleSpec, context: AdapterContext) -> AdapterLike:
    """Return the adapter a role of a task names.

    Raises:
        TaskError: There is none of that name, or its options cannot be used.
    """
    if spec.adapter == "none":
        return undecided
    factory = _python(spec.adapter, context.base) if spec.adapter.startswith(_PYTHON) else None
    try:
        factory = factory or find_part("adapters", spec.adapter)
        adapter: AdapterLike = factory(spec.options, context)
    except AgentLoopError as error:
        raise TaskError(f"[{role}] {error}") from error
    return adapter


async def undecided(prompt: Sequence[Frame], ctx: LoopContext) -> AsyncIterator[Frame]:
    """The evaluator ``none``: it never decides, so only checks and limits end the run."""
    yield Frame(
        TEXT, {"text": encode_text({"status": "RUNNING", "evidence": ctx.last_evidence or "undecided"})}
    )


def _python(name: str, base: Path) -> Any:
    """Return the factory ``python:module:factory`` names; the module may lie beside the task file.

    The task file is its author's code as much as the module is: nothing else names code.
    """
    module_name, _, attribute = name.removeprefix(_PYTHON).partition(":")
    if not module_name or not attribute:
        raise TaskError(f"{name!r} must be python:module:factory")
    beside = base / f"{module_name}.py"
    try:
        if beside.is_file():
            module = load_file(f"agentloop_task_{base.name}_{module_name}".replace("-", "_"), beside)
        else:
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise TaskError(f"{name!r} cannot be imported: {error}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise TaskError(f"{name!r}: the module {module_name} has no {attribute!r}") from None


class _ScriptOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task file may say about a scripted adapter."""

    file: str


def scripted_adapter(options: Mapping[str, Json], context: AdapterContext) -> ScriptedAdapter:
    """Return an adapter that plays a file of recorded turns: the entry point ``scripted``.

    Raises:
        AgentLoopConfigError: The option ``file`` is missing, or another one is there.
        TaskError: The file cannot be read.
    """
    if "file" not in options:
        raise AgentLoopConfigError('scripted needs a file of turns: scripted = "FILE"')
    return ScriptedAdapter(load_script(context.base / read_options("scripted", _ScriptOptions, options).file))
