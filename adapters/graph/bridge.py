"""Write-through: what a loop finds out becomes memory, and how it ends becomes experience.

A fact is a node, a finished run is a node, the work it did is a move of the task's own cursor,
and the move is rewarded by how the run ended. So are the memories the agent was shown. Every write
carries a cause, so that writing it again changes nothing; everything about one end is one transaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from adapters.graph.calls import Graph, GraphCalls, value_of
from adapters.graph.learning import REINFORCEMENT, Reinforcement, teach, visit
from adapters.graph.names import actor_of, run_node_id, start_id, symbolic_id, write_cause
from agentloop._canonical import Json
from agentloop.messages import NodeStatus, RunOutcome
from graphstate.errors import ErrorCode

__all__ = ("DEFAULT_REWARDS", "GraphBridge", "node_id_of", "reward_for")

#: What a move is worth by how its run ended; ``retry`` is added for each retry. An end without
#: a row says nothing about the move and is not rewarded: an abort.
DEFAULT_REWARDS: Final[Mapping[str, float]] = MappingProxyType(
    {"success": 1.0, "evaluator": -1.0, "max_iterations": -0.5, "error": -0.5, "retry": -0.05}
)

#: How far what somebody says may be trusted.
_TRUST: Final = {"agent": "model", "evaluator": "model", "tool": "tool"}
_MAX_EVIDENCE: Final = 4_096


def reward_for(outcome: RunOutcome, *, rewards: Mapping[str, float] = DEFAULT_REWARDS) -> float | None:
    """Return what the move to a run's node earned, -1 to 1; None if nothing."""
    row = "success" if outcome.status is NodeStatus.SUCCESS else outcome.reason
    if row not in rewards:
        return None
    return max(-1.0, min(1.0, round(rewards[row] + rewards.get("retry", 0.0) * outcome.retry_count, 6)))


def node_id_of(node: Any) -> str | None:
    """Return the graph node a loop's ``node`` stands for: a text, or something with an ``id``."""
    found = node.get("id") if isinstance(node, Mapping) else getattr(node, "id", node)
    return found if isinstance(found, str) else None


class GraphBridge:
    """Writes a loop's facts and outcomes into a graph; pass it as ``graph=`` to the loop.

    One bridge serves any number of loops of a task, also at the same time.

    Args:
        graph: `graphstate.Adaptogen`, or anything with the verbs of `Graph`.
        task: Scope of the facts, and whose cursor moves.
        loop_id: What the nodes say they are from; the run id if not given.
        node_id: The node a run works on; otherwise the loop's ``node`` says it.
        rewards: As `DEFAULT_REWARDS`.
        strict: Let a write that fails end the run.
        actor: Whose cursor moves, if not the task's own.
        memory: How far runs reinforce memories; None for not at all.

    Raises:
        ValueError: A reward has an unknown name or is no number from -1 to 1.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        task: str = "default",
        loop_id: str | None = None,
        node_id: str | None = None,
        rewards: Mapping[str, float] = DEFAULT_REWARDS,
        strict: bool = False,
        actor: str | None = None,
        memory: Reinforcement | None = REINFORCEMENT,
    ) -> None:
        _check_rewards(rewards)
        self.strict, self.actor = strict, actor or actor_of(task)
        self._graph, self._task, self._loop_id, self._node_id = graph, task, loop_id, node_id
        self._rewards = dict(rewards)
        self._memory = memory if hasattr(graph, "reinforce") else None
        self._call = GraphCalls(graph)

    # -------------------------------------------------------------------------------- facts

    async def fact(self, name: str, value: Json, /, *, op: str, by: str, iteration: int, cause: str) -> None:
        """Write one changed fact: asserted it is an active node, retracted it is archived.

        Raises:
            VerbFailed, StoreError: The graph did not take it.
        """
        run, _, number = cause.rpartition("/")
        loop = self._loop_id or run
        payload = {"name": name, "value": value, "loop": loop, "iteration": iteration, "by": by}
        write = partial(self._assert, payload) if op == "assert" else partial(self._retract, name)
        await self._call(partial(write, self._speaker(by), write_cause(run, number)))

    def _speaker(self, by: str) -> Graph:
        as_actor: Callable[..., Graph] | None = getattr(self._graph, "as_actor", None)
        if as_actor is None or by not in _TRUST:
            return self._graph
        return as_actor(self.actor, trust=_TRUST[by])

    def _assert(self, payload: dict[str, Json], graph: Graph, cause: str) -> None:
        name = payload["name"]
        value_of(
            graph.remember(
                symbolic_id(self._task, name),
                kind="symbolic",
                label=name,
                payload=payload,
                tags=["symbolic"],
                status="active",
                actor=self.actor,
                cause=cause,
            )
        )

    def _retract(self, name: str, graph: Graph, cause: str) -> None:
        node = symbolic_id(self._task, name)
        # A fact the loop was given, and never asserted, has no node to put aside.
        if graph.get_node(node) is not None:
            value_of(graph.archive(node, actor=self.actor, cause=cause))

    # ------------------------------------------------------------------------------ outcomes

    async def record_outcome(
        self, outcome: RunOutcome, /, *, seal: Callable[[Mapping[str, Json]], None] | None = None
    ) -> Mapping[str, Json]:
        """Write the run, take the move to its node, reward exactly that move.

        Args:
            outcome: How the run ended.
            seal: Called once inside the transaction, as its last part, with what is about to
                be returned; what it raises keeps nothing. For a ledger in the same file (see
                `shares`), whose closing entries then are kept together with the outcome. It
                may run in a worker thread.

        Returns:
            ``run`` and, if there was a move to make, ``node``, ``edge``, ``applied``,
            ``reward``; ``problem`` says why a move was not made, ``taught`` which memories got
            their share.

        Raises:
            VerbFailed, StoreError: The graph did not take it; nothing of it was kept.
        """
        return await self._call(partial(self._write, outcome, seal))

    def shares(self, ledger: object) -> bool:
        """Say whether a ledger store is in the graph's file, so that `seal` joins them."""
        mine = getattr(self._graph, "store", None)
        return mine is not None and getattr(ledger, "store", None) is mine

    def _write(
        self, outcome: RunOutcome, seal: Callable[[Mapping[str, Json]], None] | None
    ) -> Mapping[str, Json]:
        target = self._node_id or node_id_of(outcome.node)
        if outcome.reason == "aborted" or target is None or self._graph.get_node(target) is None:
            return self._write_once(outcome, {}, None, seal)
        try:
            return self._write_once(outcome, {}, target, seal)
        except _NoMove as refused:
            # A failed verb takes the whole unit with it, so the run is written in another one.
            return self._write_once(outcome, {"node": target, "problem": str(refused)}, None, seal)

    def _write_once(
        self,
        outcome: RunOutcome,
        done: dict[str, Json],
        target: str | None,
        seal: Callable[[Mapping[str, Json]], None] | None,
    ) -> Mapping[str, Json]:
        with self._unit(sync=seal is not None):
            if target is not None:
                done |= self._move(outcome, target)
            if taught := self._teach(outcome, done):
                done = {**done, "taught": taught}
            done = {"run": self._remember_run(outcome, done), **done}
            if seal is not None:
                seal(done)
        return done

    def _unit(self, *, sync: bool) -> AbstractContextManager[object]:
        unit: Callable[..., AbstractContextManager[object]] | None = getattr(self._graph, "unit", None)
        return nullcontext() if unit is None else unit(sync=sync)

    def _move(self, outcome: RunOutcome, target: str) -> dict[str, Json]:
        self._enter(outcome.run_id)
        edge = outcome.node.get("edge_id") if isinstance(outcome.node, Mapping) else None
        options = {"edge_id": edge} if edge is not None else {}
        answer = self._graph.transition(
            target, **options, actor=self.actor, cause=write_cause(outcome.run_id, "transition")
        )
        if not getattr(answer, "ok", True) and answer.code in (
            ErrorCode.ILLEGAL_TRANSITION,
            ErrorCode.NOT_FOUND,
        ):
            raise _NoMove(f"{answer.message} ({answer.hint})")
        taken = value_of(answer)
        done: dict[str, Json] = {"node": target, "edge": taken.edge_id, "applied": taken.applied}
        if not taken.applied:
            reasons = "; ".join(taken.trace.reasons) or "by policy"
            return {**done, "problem": f"the move to {target!r} was denied: {reasons}"}
        if self._memory is not None:
            visit(self._graph, target, self._memory, run=outcome.run_id, actor=self.actor)
        value = reward_for(outcome, rewards=self._rewards)
        if value is not None:
            cause = write_cause(outcome.run_id, "reward")
            value_of(self._graph.reward(value, edge_id=taken.edge_id, actor=self.actor, cause=cause))
            done["reward"] = value
        return done

    def _teach(self, outcome: RunOutcome, done: Mapping[str, Json]) -> list[Json]:
        value = reward_for(outcome, rewards=self._rewards)
        if self._memory is None or value is None or not outcome.retrieval_ids:
            return []
        node = done.get("node")
        return [
            *teach(
                self._graph, outcome.retrieval_ids, value, self._memory,
                node=node if isinstance(node, str) else None, run=outcome.run_id, actor=self.actor,
            )
        ]  # fmt: skip

    def _enter(self, run: str) -> None:
        """Put a cursor that stands nowhere on the task's start, if there is one."""
        cursor = getattr(self._graph, "cursor", None)
        if cursor is None or cursor(actor=self.actor):
            return
        start = start_id(self._task)
        if self._graph.get_node(start) is not None:
            cause = write_cause(run, "cursor")
            value_of(self._graph.set_cursor([start], actor=self.actor, cause=cause))

    def _remember_run(self, outcome: RunOutcome, done: Mapping[str, Json]) -> str:
        aborted = outcome.reason == "aborted"
        payload: dict[str, Json] = {
            "status": "aborted" if aborted else outcome.status.value,
            "reason": outcome.reason,
            "evidence": None if outcome.evidence is None else outcome.evidence[:_MAX_EVIDENCE],
            "iterations": outcome.iterations,
            "retry_count": outcome.retry_count,
            "task": self._task,
            "loop": self._loop_id or outcome.run_id,
            **done,
        }
        if done.get("applied") is False:
            payload["denied"] = True
        if outcome.retrieval_ids:
            payload["retrieval_ids"] = list(outcome.retrieval_ids)
        node = run_node_id(self._loop_id or outcome.run_id)
        cause = write_cause(outcome.run_id, "run")
        # The evidence is the evaluator's text, whoever wrote the rest.
        writer = self._graph if outcome.evidence is None else self._speaker("evaluator")
        value_of(
            writer.remember(
                node,
                kind="run",
                payload=payload,
                tags=["run"],
                status="active",
                actor=self.actor,
                cause=cause,
            )
        )
        return node


class _NoMove(Exception):
    """No edge leads where the run says it has worked."""


def _check_rewards(rewards: Mapping[str, float]) -> None:
    for name, value in rewards.items():
        if name not in DEFAULT_REWARDS:
            raise ValueError(f"rewards has no row {name!r}: it has {', '.join(DEFAULT_REWARDS)}")
        number = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
        if not number or not -1 <= value <= 1:
            raise ValueError(f"the reward {name!r} must be a number from -1 to 1, not {value!r}")
