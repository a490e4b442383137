"""Task files: a folder with a ``task.toml``, read and checked before anything is begun."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agentloop._canonical import Json, NotJson, decode, encode
from agentloop.checks import create_default_deterministic_checks
from agentloop.errors import TaskError

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

__all__ = ("TASK_FILE", "RoleSpec", "Task", "TaskNode", "load_task", "task_schema")

TASK_FILE: Final = "task.toml"
_MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """Who acts as the agent or the evaluator."""

    #: An entry-point name, ``none``, or ``python:module:factory``.
    adapter: str
    options: Mapping[str, Json] = field(default_factory=dict)
    instructions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """A part of a task that is done by a loop of its own."""

    id: str
    goal: str
    after: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as its file describes it; every path is absolute."""

    name: str
    goal: str
    #: The folder of the task file; relative names start here.
    folder: Path
    workspace: Path | None
    in_place: bool
    agent: RoleSpec
    evaluator: RoleSpec
    files: bool
    allow_shell: bool
    shell: Mapping[str, Json]
    tool_timeout_ms: int
    checks: tuple[str, ...]
    symbolics: Mapping[str, Json]
    symbolic_names: Mapping[str, str] | None
    limits: Mapping[str, Any]
    #: The file that keeps the runs and the graph.
    state: Path
    #: The node of the graph this task stands for.
    node: str
    #: Show the agent what earlier runs left in the graph, and let it add to that.
    memory: bool = False
    nodes: tuple[TaskNode, ...] = ()
    order: Literal["listed", "graph"] = "graph"
    #: Settings that replaced those of the file.
    overrides: tuple[str, ...] = ()


def task_schema() -> dict[str, Any]:
    """Return the JSON Schema of a task file."""
    schema: dict[str, Any] = decode(files("agentloop.tasks").joinpath("task.schema.json").read_bytes())
    return schema


def load_task(path: Path, *, overrides: Sequence[str] = ()) -> Task:
    """Read the task in a folder, or the task file itself.

    Args:
        path: Of the folder or the file.
        overrides: Settings that replace those of the file, as ``limits.max_iterations=3``;
            the value is TOML, or text where it is not.

    Raises:
        TaskError: It is missing, is not TOML, or a key is unknown (the message names the
            nearest one), missing, or of the wrong form.
    """
    file = path / TASK_FILE if path.is_dir() else path
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise TaskError(f"{file} has more than {_MAX_BYTES} bytes: that is no task file")
        data = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        hint = f"a task is a folder with a {TASK_FILE}; 'agentloop new NAME' makes one"
        raise TaskError(f"{file}: {error.strerror or error} ({hint})") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{file} is not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{file} is not TOML: {error}") from error
    try:
        for override in overrides:
            _override(data, override)
        _validate(data)
        return replace(_task(data, file.resolve().parent), overrides=tuple(overrides))
    except TaskError as error:
        raise TaskError(f"{file}: {error}") from None


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    *tables, name = key.strip().split(".")
    if not equals or not name:
        raise TaskError(f"{override!r} is not KEY=VALUE, as limits.max_iterations=3")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise TaskError(f"{key!r} cannot be set: {table!r} is no table")
    data[name] = value


# -------------------------------------------------------------------------------- validation


def _validate(data: Mapping[str, Any]) -> None:
    # Imported on use: it takes longer to import than everything else here together.
    from jsonschema import Draft202012Validator

    errors = Draft202012Validator(task_schema()).iter_errors(data)
    for error in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
        raise TaskError(_explain(error))
    try:
        encode(data)
    except NotJson as error:
        raise TaskError(f"only texts, numbers, booleans, lists and tables can be used: {error}") from None


def _explain(error: ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path)
    instance: Any = error.instance
    wanted: Any = error.validator_value
    match error.validator:
        case "additionalProperties" if isinstance(error.schema, Mapping):
            known = sorted(error.schema.get("properties", ()))
            key = next(key for key in instance if key not in known)
            return _unknown_key(f"{place}.{key}" if place else key, key, known)
        case "required":
            missing = next(name for name in wanted if name not in instance)
            return f"{f'{place}.' if place else ''}{missing} is missing"
        case "pattern":
            return f"{place}: {instance!r:.80} is no name: it has to match {wanted}"
        case "maxItems":
            return f"{place}: {len(instance)} are more than the {wanted} there may be"
    return f"{place or 'the file'}: {error.message:.300}"


def _unknown_key(path: str, key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"unknown key {path!r}: {hint}"


# ------------------------------------------------------------------------------------ values


def _task(data: Mapping[str, Any], folder: Path) -> Task:
    head, tools = data["task"], data.get("tools", {})
    graph, symbolics = data.get("graph", {}), data.get("symbolics", {})
    name = head.get("name") or _name_of(folder)
    workspace = folder / head["workspace"] if "workspace" in head else None
    if workspace is not None and not workspace.is_dir():
        raise TaskError(f"task.workspace: there is no folder {head['workspace']!r} beside the task file")
    if head.get("in_place") and workspace is None:
        raise TaskError("task.in_place needs a task.workspace to work in")
    nodes = _nodes(data.get("nodes", ()), head["goal"], symbolics.get("declared"))
    agent, evaluator = _role(data.get("agent"), "agent"), _role(data.get("evaluator"), "evaluator")
    checks = _checks(data.get("checks", ()), "checks", symbolics.get("declared"))
    if evaluator.adapter == "none" and not checks and not (nodes and all(node.checks for node in nodes)):
        raise TaskError("nothing could ever say that the task is done: give it checks, or an [evaluator]")
    limits = dict(data.get("limits", {}))
    if "inner_max_iterations" in limits and not nodes:
        raise TaskError("limits.inner_max_iterations is for tasks with [[nodes]]; use limits.max_iterations")
    return Task(
        name=name,
        goal=head["goal"],
        folder=folder,
        workspace=workspace,
        in_place=head.get("in_place", False),
        agent=agent,
        evaluator=evaluator,
        files=tools.get("files", True),
        allow_shell=tools.get("allow_shell", False),
        shell=tools.get("shell", {}),
        tool_timeout_ms=tools.get("timeout_ms", 30_000),
        checks=checks,
        symbolics=symbolics.get("initial", {}),
        symbolic_names=symbolics.get("declared"),
        limits=limits,
        state=folder / graph.get("file", ".agentloop/state.db"),
        node=graph.get("node", f"task:{name}"),
        memory=graph.get("memory", False),
        nodes=nodes,
        order=data.get("order", "graph"),
    )


def _name_of(folder: Path) -> str:
    """Return the name of a task that has none: its folder's, as far as that can be one."""
    return re.sub("[^A-Za-z0-9._-]+", "-", folder.name).strip("._-")[:64] or "task"


def _role(data: Mapping[str, Any] | None, role: str) -> RoleSpec:
    if data is None:
        if role == "agent":
            raise TaskError('an [agent] is needed: adapter = "openai", "command", or scripted = FILE')
        return RoleSpec(adapter="none")
    options = dict(data.get("options", {}))
    adapter = data.get("adapter")
    if "scripted" in data:
        if adapter not in (None, "scripted"):
            raise TaskError(f"{role}.scripted and {role}.adapter = {adapter!r} exclude each other")
        adapter, options["file"] = "scripted", data["scripted"]
    if "model" in data:
        options["model"] = data["model"]
    if adapter is None:
        raise TaskError(f'{role}.adapter is missing: "openai", "command", "scripted" or "none"')
    if adapter == "none" and role == "agent":
        raise TaskError('agent.adapter = "none" is for an evaluator: somebody has to do the work')
    return RoleSpec(adapter=adapter, options=options, instructions=data.get("instructions", ""))


def _checks(given: Sequence[str], place: str, declared: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the checks; one that could never pass would only be found out after the last cycle."""
    asked = create_default_deterministic_checks()
    for position, check in enumerate(given):
        if problem := asked.problem(check):
            raise TaskError(f"{place}.{position}: {check!r:.80}: {problem}")
        for name in asked.symbolic_names([check]):
            if declared is not None and name not in declared:
                raise TaskError(f"{place}.{position}: {check!r:.80}: symbolics.declared has no {name!r}")
    return tuple(given)


def _nodes(
    data: Sequence[Mapping[str, Any]], goal: str, declared: Mapping[str, str] | None
) -> tuple[TaskNode, ...]:
    nodes = tuple(
        TaskNode(
            id=node["id"],
            goal=node.get("goal", goal),
            after=tuple(node.get("after", ())),
            checks=_checks(node.get("checks", ()), f"nodes.{position}.checks", declared),
        )
        for position, node in enumerate(data)
    )
    ids = [node.id for node in nodes]
    for position, node in enumerate(nodes):
        if node.id in ids[:position]:
            raise TaskError(f"nodes.{position}.id: {node.id!r} stands twice")
        for other in node.after:
            if other not in ids:
                raise TaskError(f"nodes.{position}.after: " + _unknown_node(other, ids))
    return nodes


def _unknown_node(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"no node {name!r}" + (
        f": did you mean {near[0]!r}?" if near else f" (there are {', '.join(known)})"
    )
