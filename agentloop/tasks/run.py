"""A run of a task: its scratch workspace, its parts put together, its place in the memory."""

from __future__ import annotations

import dataclasses
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from agentloop.checks import create_default_deterministic_checks
from agentloop.determinism import RunIds
from agentloop.errors import ModelError, ScriptExhausted, TaskError
from agentloop.factories import create_agent_loop, create_looping_agent_loop
from agentloop.loop.agent import AgentLoop
from agentloop.loop.looping import LoopingAgentLoop
from agentloop.messages import LoopResult, NodeStatus
from agentloop.models import AdapterContext
from agentloop.ports import NodeOrder, ProjectMemory
from agentloop.redact import Redactor, secrets_from_env
from agentloop.symbolic import create_symbolic_state
from agentloop.tasks.file import Task
from agentloop.tasks.parts import find_part, make_adapter
from agentloop.tasks.prompts import agent_prompt, evaluator_prompt
from agentloop.tools import Tool
from agentloop.verdict import create_default_evaluator_parser

__all__ = ("TaskRun", "begin_task", "fork_task", "open_memory", "resume_task", "runs_folder")

#: What the command shows beside the frames every loop emits.
_FORWARD: Final = ("TEXT", "TOOL_CALL", "TOOL_RESULT")
#: With nodes: inner loops a node may have on average before the run gives up.
_ROUNDS_PER_NODE: Final = 4


def open_memory(state: Path, *, read_only: bool = False) -> ProjectMemory:
    """Open the file that keeps a project's runs and graph, making it and its folder if need be.

    Raises:
        TaskError: The file cannot be opened; the message says why and nothing was changed.
    """
    if not _is_utf8(state):
        raise TaskError(f"{state}: SQLite opens no file whose path is not UTF-8")
    opener = find_part("bridges", "graph")
    if not read_only:
        try:
            state.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TaskError(f"{state.parent}: {error.strerror or error}") from error
    memory: ProjectMemory = opener(state, read_only=read_only)
    return memory


def _is_utf8(path: Path | str) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def runs_folder(state: Path, run_id: str) -> Path:
    """Return the folder of a run, beside the file that keeps it."""
    return state.parent / "runs" / run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """A task that is ready to run."""

    task: Task
    run_id: str
    workspace: Path
    loop: AgentLoop | LoopingAgentLoop
    memory: ProjectMemory
    order: NodeOrder | None = None
    adapters: tuple[object, ...] = ()

    def succeeded(self, result: LoopResult) -> bool:
        """Whether the task is done: the loop succeeded, or with nodes every one of them did."""
        return result.status is NodeStatus.SUCCESS if self.order is None else self.order.complete

    def cycles(self) -> int:
        """How many cycles the run has had, those of all its inner loops together."""
        if isinstance(self.loop, LoopingAgentLoop):
            return sum(result.iterations for result in self.loop.results)
        return self.loop.result.iterations if self.loop.result is not None else 0

    def usage(self) -> dict[str, int]:
        """What the run has used, that of all its inner loops together."""
        if not isinstance(self.loop, LoopingAgentLoop):
            return dict(self.loop.result.usage) if self.loop.result is not None else {}
        total: dict[str, int] = {}
        for result in self.loop.results:
            for name, count in result.usage.items():
                total[name] = total.get(name, 0) + count
        return total

    async def aclose(self) -> None:
        """Close what the adapters hold, such as the connections of a model's client."""
        for adapter in self.adapters:
            close = getattr(adapter, "aclose", None)
            if close is not None:
                await close()

    def close(self) -> None:
        """Close the memory."""
        self.memory.close()


#: Makes the loop of a task from its options, for one that begins, is resumed or forked.
MakeLoop: TypeAlias = Callable[..., "AgentLoop | LoopingAgentLoop"]


def begin_task(
    task: Task,
    *,
    environ: Mapping[str, str] | None = None,
    run_id: str | None = None,
    on_node: Callable[[str, Sequence[str]], object] | None = None,
) -> TaskRun:
    """Put the parts of a task together: adapters and tools, memory, workspace, loop.

    Nothing is written until the parts that can be wrong are there.

    Args:
        task: As `load_task` read it.
        environ: Where adapters find their keys and commands their PATH; the process's own if
            not given.
        run_id: Drawn if not given.
        on_node: With nodes, told the id of each one that was chosen, and why.

    Raises:
        TaskError: An adapter, a tool, the memory or the workspace cannot be used; nothing was
            begun.
    """
    run_id = run_id or RunIds()()
    workspace = task.workspace if task.in_place else runs_folder(task.state, run_id) / "workspace"
    assert workspace is not None  # load_task: in_place needs one

    def make(memory: ProjectMemory, single: bool, options: dict[str, Any]) -> AgentLoop | LoopingAgentLoop:
        given = {**options, "ledger": memory.ledger, "run_id": run_id, "labels": _labels(task, workspace)}
        loop = create_agent_loop(**given) if single else create_looping_agent_loop(**given)
        if not task.in_place:
            _copy_workspace(task, workspace)
        return loop

    return _put_together(task, run_id, workspace, make, environ=environ, on_node=on_node)


def resume_task(
    task: Task,
    run_id: str,
    workspace: Path,
    *,
    environ: Mapping[str, str] | None = None,
    on_node: Callable[[str, Sequence[str]], object] | None = None,
) -> TaskRun:
    """Put the parts of a task together for a run that was cut off; it goes on where it was.

    Args:
        task: As it was when the run began; its limits are not looked at, the record has them.
        run_id: Of the run, in the task's file.
        workspace: Where the run has worked and goes on working.

    Raises:
        TaskError, LedgerError: It cannot be gone on with.
    """

    from agentloop.resumes import OUTER_REFUSED, REFUSED, resume  # a run that begins does not need it

    def make(memory: ProjectMemory, single: bool, options: dict[str, Any]) -> AgentLoop | LoopingAgentLoop:
        for name in REFUSED if single else OUTER_REFUSED:
            options.pop(name, None)
        return resume(memory.ledger, run_id, **options)

    return _put_together(task, run_id, workspace, make, environ=environ, on_node=on_node, resumed=True)


def fork_task(
    task: Task, run: str, at: int, workspace: Path, *, environ: Mapping[str, str] | None = None
) -> TaskRun:
    """Put the parts of a task together for a new run that begins as another one did.

    Args:
        task: As it is to go on from there: its agent, limits and checks may differ.
        run: The run to begin as, up to its entry ``at``.
        workspace: That of the other run; it is copied as it is now.

    Raises:
        TaskError, LedgerError, ValueError: It cannot be forked there.
    """
    if task.nodes:
        raise TaskError("a run over [[nodes]] cannot be forked: begin another one, or resume it")
    from agentloop.resumes import fork

    run_id = RunIds()()
    copy = task.workspace if task.in_place else runs_folder(task.state, run_id) / "workspace"
    assert copy is not None  # load_task: in_place needs one

    def make(memory: ProjectMemory, single: bool, options: dict[str, Any]) -> AgentLoop | LoopingAgentLoop:
        if not task.in_place:
            _copy_workspace(dataclasses.replace(task, workspace=workspace), copy)
        try:
            labels = _labels(task, copy)
            return fork(memory.ledger, run, at=at, **{**options, "run_id": run_id, "labels": labels})
        except BaseException as error:
            if not task.in_place:
                shutil.rmtree(copy.parent, ignore_errors=True)
            if type(error) is ValueError:  # there is no such entry
                raise TaskError(str(error)) from error
            raise

    return _put_together(task, run_id, copy, make, environ=environ)


def _put_together(
    task: Task,
    run_id: str,
    workspace: Path,
    make: MakeLoop,
    *,
    environ: Mapping[str, str] | None,
    on_node: Callable[[str, Sequence[str]], object] | None = None,
    resumed: bool = False,
) -> TaskRun:
    environ = _with_this_python(os.environ if environ is None else environ)
    redactor = Redactor(secrets_from_env(_secret_names(environ), environ=environ))
    context = AdapterContext(workspace=workspace, base=task.folder, environ=environ, redactor=redactor)
    options = _loop_options(task, context)
    memory = open_memory(task.state)
    try:
        if task.memory:
            options |= _with_memory(task, memory, options["tool_adapters"])
        order = None
        if task.nodes:
            nodes = [dataclasses.asdict(node) for node in task.nodes]
            order = memory.order(task=task.name, nodes=nodes, by=task.order, resumed=resumed)
            loop = make(memory, False, _looping_options(task, options, order, memory, on_node))
        else:
            bridge = memory.bridge(task=task.name, node=task.node)
            loop = make(memory, True, {**options, "graph": bridge})
    except BaseException:
        memory.close()
        raise
    return TaskRun(
        task=task,
        run_id=run_id,
        workspace=workspace,
        loop=loop,
        memory=memory,
        order=order,
        adapters=(options["agent_adapter"], options["evaluator_adapter"]),
    )


def _with_this_python(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment in which ``python3`` is the Python that runs this.

    A task's commands are to find what is installed beside us, also when we were called by our
    path out of an environment that nobody has activated.
    """
    here, path = os.path.dirname(sys.executable), environ.get("PATH", os.defpath)
    if not here or os.path.dirname(shutil.which("python3", path=path) or "") == here:
        return environ
    return {**environ, "PATH": f"{here}{os.pathsep}{path}"}


def _secret_names(environ: Mapping[str, str]) -> list[str]:
    marks = ("API_KEY", "TOKEN", "SECRET", "PASSWORD")
    return [name for name in environ if any(mark in name.upper() for mark in marks)]


def _copy_workspace(task: Task, scratch: Path) -> None:
    try:
        if task.workspace is None:
            scratch.mkdir(parents=True)
        else:
            ignore = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".agentloop")
            shutil.copytree(task.workspace, scratch, symlinks=True, ignore=ignore)
    except BaseException as error:
        shutil.rmtree(scratch.parent, ignore_errors=True)
        if isinstance(error, (OSError, shutil.Error)):
            raise TaskError(f"the workspace cannot be copied to {scratch}: {error}") from error
        raise


def _labels(task: Task, workspace: Path) -> dict[str, Any]:
    base = task.state.parent
    shown = workspace.relative_to(base) if workspace.is_relative_to(base) else workspace
    labels: dict[str, Any] = {"task": task.name, "goal": task.goal, "workspace": str(shown)}
    # Seen from the file that keeps the runs: both may move together.
    folder = os.path.relpath(task.folder, base)
    if _is_utf8(folder):  # else a run that is resumed has to be told
        labels["folder"] = folder
    return {**labels, "set": list(task.overrides)} if task.overrides else labels


def _tools(task: Task, context: AdapterContext) -> dict[str, Tool]:
    tools: list[Tool] = []
    if task.files:
        tools += find_part("tools", "files")({}, context)
    if task.allow_shell:
        tools.append(find_part("tools", "shell")({"timeout_ms": task.tool_timeout_ms, **task.shell}, context))
    elif task.shell:
        raise TaskError("tools.shell has options, but tools.allow_shell is not true")
    return {tool.name: tool for tool in tools}


def _loop_options(task: Task, context: AdapterContext) -> dict[str, Any]:
    return {
        "agent_adapter": make_adapter("agent", task.agent, context),
        "evaluator_adapter": make_adapter("evaluator", task.evaluator, context),
        "build_agent_prompt": agent_prompt(task),
        "build_evaluator_prompt": evaluator_prompt(task),
        "parse_evaluator_output": create_default_evaluator_parser(),
        "deterministic_checks": create_default_deterministic_checks(workspace_dir=context.workspace),
        "checks_list": list(task.checks),
        "tool_adapters": _tools(task, context),
        "tool_timeout_ms": task.tool_timeout_ms,
        "symbolics": create_symbolic_state(task.symbolics, declared=task.symbolic_names),
        "forward_frames": _FORWARD,
        "extra_frames": True,
        "redactor": context.redactor,
        **task.limits,
    }


def _with_memory(task: Task, project: ProjectMemory, tools: Mapping[str, Tool]) -> dict[str, Any]:
    from agentloop.tasks.recollection import RememberingProject, prompt_with_memory, remember_tool

    if not isinstance(project, RememberingProject):
        raise TaskError("graph.memory = true, but this file keeps no memories")
    store = project.memory(task=task.name)
    remember = remember_tool(store)
    return {
        "build_agent_prompt": prompt_with_memory(task, store),
        "tool_adapters": {**tools, remember.name: remember},
    }


class _Nodes:
    """The order of a task's nodes, which tells the person watching what was chosen and why."""

    def __init__(self, order: NodeOrder, on_node: Callable[[str, Sequence[str]], object] | None) -> None:
        self._order, self._on_node = order, on_node
        self.take_up = order.take_up

    async def __call__(self, index: int) -> Mapping[str, Any] | None:
        found = self._order(index)
        node: Mapping[str, Any] | None = await found if inspect.isawaitable(found) else found
        if node is not None and self._on_node is not None:
            self._on_node(node["id"], self._order.explain())
        return node

    async def should_continue(self, result: LoopResult, index: int) -> bool:
        answer = self._order.should_continue(result, index)
        again = await answer if inspect.isawaitable(answer) else answer
        return bool(again) and not _is_hopeless(result.error)


def _looping_options(
    task: Task,
    options: dict[str, Any],
    order: NodeOrder,
    memory: ProjectMemory,
    on_node: Callable[[str, Sequence[str]], object] | None,
) -> dict[str, Any]:
    bridge = memory.bridge(task=task.name, node=None)

    def make_inner(*, node: Mapping[str, Any], **inner: Any) -> AgentLoop:
        checks = [*node["checks"]] or inner["checks_list"]
        labels = {"task": task.name, "node": node["id"], "goal": node["goal"]}
        return create_agent_loop(**{**inner, "checks_list": checks}, node=node, graph=bridge, labels=labels)

    nodes = _Nodes(order, on_node)
    return {
        "max_iterations": _ROUNDS_PER_NODE * len(task.nodes),
        **options,
        "inner_loop_factory": make_inner,
        "node_provider": nodes,
        "should_continue": nodes.should_continue,
    }


def _is_hopeless(error: BaseException | None) -> bool:
    """Whether the other nodes would fail in the same way: a refused key, a script that is over."""
    if isinstance(error, ModelError):
        return error.error_class in ("fatal", "budget")
    return isinstance(error, ScriptExhausted)
