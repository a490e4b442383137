"""Intuition: rank moves by experience, and learn from what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphstate import scoring
from graphstate._canonical import Json
from graphstate.errors import ErrorCode
from graphstate.events import Draft, is_valid_id
from graphstate.model import Rewarded, Stat, Step, Suggestion
from graphstate.results import Ok, Result
from graphstate.store.projection import TRAIL
from graphstate.verbs import arguments
from graphstate.verbs.arguments import refuse
from graphstate.verbs.fsm import NO_EDGE, candidates, checked_vars, chosen, moved, moving_actor
from graphstate.verbs.judge import Judge
from graphstate.verbs.structure import known_edge
from graphstate.verbs.verb import Verbs, query, verb

__all__ = ("Intuition",)

#: Rewards are from minus this to this, so that no average can overflow.
MAX_REWARD = 1e6

#: Ranked moves that a step writes into its event.
RECORDED = 16


class Intuition(Verbs):
    """suggest, step, reward."""

    __slots__ = ()

    @query
    def suggest(
        self, *, vars: Mapping[str, Json] | None = None, actor: str | None = None
    ) -> list[Suggestion]:
        """Return the legal moves, best first, each with the terms of its score.

        Reads memory only, and the payloads of both ends where an edge has a guard: the cost
        depends on the number of moves, not on the graph. Denied moves are left out.

        Args:
            vars: What guards read as ``vars``.
        """
        return _ranked(self, moving_actor(self, actor), checked_vars(vars))[0]

    @verb
    def step(
        self,
        to: str | None = None,
        *,
        vars: Mapping[str, Json] | None = None,
        reward: float | None = None,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Step]:
        """Take the best move, or the best one to a target, and reward it.

        The edge that was suggested is the edge that is taken and credited, and the ranking
        is written into the event.

        Args:
            reward: If given, and the move was applied, credit its edge and target.
        """
        actor = moving_actor(self, actor)
        known_vars = checked_vars(vars)
        judge = Judge(self.store.projection, known_vars)
        value = None if reward is None else _reward_value(reward)
        if not self.store.projection.cursor(actor).nodes:
            refuse("the cursor is empty", hint="put it on a node with set_cursor")
        ranked, draws = _ranked(self, actor, known_vars)
        suggestion = next((s for s in ranked if to is None or s.to == to), None)
        if suggestion is not None:
            edge, decision = chosen(self, judge, suggestion.to, suggestion.edge_id, actor)
        elif to is None:
            refuse("no move is legal from the cursor", ErrorCode.NO_MOVES, hint=NO_EDGE)
        else:
            edge, decision = chosen(self, judge, to, None, actor)
        choice: dict[str, Any] = {"ranked": [[s.edge_id, s.score] for s in ranked[:RECORDED]]}
        if draws:
            choice["draws"] = draws
        outcome = moved(self, judge, edge, decision, actor=actor, cause=cause, choice=choice)
        rewarded = None
        if outcome.applied and value is not None:
            rewarded = _credit(self, [(edge.id, edge.dst)], value, 1.0, actor=actor, cause=None)
        done = not candidates(self, actor, known_vars)
        return Ok(
            Step(to=edge.dst, suggestion=suggestion, applied=outcome.applied, denied=not outcome.applied,
                 soft_warned=outcome.soft_warned, outcome=outcome, reward=rewarded, done=done)
        )  # fmt: skip

    @verb
    def reward(
        self,
        value: float,
        *,
        edge_id: str | None = None,
        trace: bool = False,
        depth: int = 5,
        lambda_: float = 0.6,
        actor: str | None = None,
        cause: str | None = None,
    ) -> Result[Rewarded]:
        """Credit what led here: edge and target alike.

        Without ``edge_id`` the actor's last move is credited, with ``trace`` its last
        ``depth`` moves, each earlier one by ``lambda_`` less.

        Args:
            value: From -1,000,000 to 1,000,000; 0 and more is a success.
            edge_id: Credit this edge and its target instead.
            depth: 0 to 32.
            lambda_: 0 to 1.
        """
        actor = moving_actor(self, actor)
        value = _reward_value(value)
        if edge_id is not None:
            edge = known_edge(self.store, edge_id)
            return Ok(_credit(self, [(edge.id, edge.dst)], value, 1.0, actor=actor, cause=cause))
        depth = arguments.whole(depth, "depth", least=0, most=TRAIL)
        fade = arguments.number(lambda_, "lambda_", least=0, most=1)
        moves = self.store.projection.trail(actor, depth if trace else 1)
        if not moves:
            refuse(
                f"{actor!r} has made no move that could be rewarded",
                ErrorCode.NOT_FOUND,
                hint="call transition or step first, or name an edge with edge_id",
            )
        return Ok(_credit(self, moves, value, fade if trace else 1.0, actor=actor, cause=cause))

    @query
    def get_stat(self, kind: str, id: str) -> Stat | None:
        """Return what is known about a ``node`` or an ``edge``, None if nothing is.

        Raises:
            VerbFailed: InvalidInput.
        """
        arguments.choice(kind, "kind", ("node", "edge"))
        return self.store.projection.stat(kind, id) if is_valid_id(id) else None


def _reward_value(value: object) -> float:
    return arguments.number(value, "reward", least=-MAX_REWARD, most=MAX_REWARD)


def _credit(
    graph: Verbs, moves: list[tuple[str, str]], value: float, fade: float, *, actor: str, cause: str | None
) -> Rewarded:
    scopes: list[Json] = []
    weight: float = 1
    for edge_id, target in moves:
        scopes.append({"kind": "edge", "id": edge_id, "weight": weight})
        scopes.append({"kind": "node", "id": target, "weight": weight})
        weight *= fade
    alpha = graph.store.projection.tunables()["rewardAlpha"]
    body = {"scopes": scopes, "value": value, "alpha": alpha}
    graph.record(Draft("RewardApplied", body), actor=actor, cause=cause)
    return Rewarded(scopes=len(scopes))


def _ranked(
    graph: Verbs, actor: str, vars: Mapping[str, Json] | None
) -> tuple[list[Suggestion], list[float]]:
    projection = graph.store.projection
    return scoring.rank(
        candidates(graph, actor, vars),
        tunables=projection.tunables(),
        moves_of=lambda other: projection.cursor(other).moves,
        rand=graph.store.rand,
    )
