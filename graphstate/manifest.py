"""The manifest: what the package can do, as data. Command line and docs iterate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphstate.errors import HINTS
from graphstate.guards import guide
from graphstate.tunables import TUNABLES
from graphstate.verbs.bundles import Bundles
from graphstate.verbs.durability import Durability
from graphstate.verbs.fsm import Moving
from graphstate.verbs.intuition import Intuition
from graphstate.verbs.memory import Memory
from graphstate.verbs.observe import Observation
from graphstate.verbs.structure import Structure

__all__ = ("VERBS", "describe")

#: The verbs by family, in the order in which they are best read.
VERBS: Mapping[type, tuple[str, ...]] = {
    Memory: ("remember", "get_node", "set_status", "archive", "deprecate", "recall", "fts_enabled"),
    Structure: (
        "link", "depend", "unlink", "get_edge", "ready", "topo", "reachable", "ancestors", "descendants",
    ),
    Moving: ("set_cursor", "cursor", "legal_moves", "explain_transition", "transition"),
    Intuition: ("suggest", "step", "reward", "get_stat"),
    Durability: (
        "checkpoint", "list_checkpoints", "rollback", "verify_integrity", "set_tunable", "get_tunables",
    ),
    Bundles: ("export", "branch", "fork", "merge"),
    Observation: ("history", "metrics", "render", "head"),
}  # fmt: skip

_SUMMARY = "A graph that is memory, policy and intuition at once: an event log over one SQLite file."

_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "minimal_session": (
        'graph.remember("research", payload={"topic": "caches"})',
        'graph.remember("draft")',
        'graph.link("research", "draft")',
        'graph.set_cursor(["research"])',
        'graph.transition("draft")',
        "graph.reward(1)",
    ),
    "step_loop": (
        "result = graph.step(reward=1)",
        "while result.ok and not result.value.done:",
        "    result = graph.step(reward=1)",
    ),
    "checkpoint_rollback": (
        'graph.checkpoint("before")',
        'graph.remember("risky")',
        'graph.rollback("before", reason="did not work")',
    ),
    "retry_without_repeating": (
        'graph.reward(1, edge_id=edge.id, cause="run-7/reward")',
        'graph.reward(1, edge_id=edge.id, cause="run-7/reward").repeated  # True, and credited once',
    ),
    "try_something_apart": (
        'branch = graph.branch(":memory:").unwrap()',
        'branch.remember("idea")',
        "graph.merge(branch).unwrap().merged  # 1",
        "branch.discard()",
    ),
    "several_verbs_in_one_commit": (
        "with graph.unit():",
        '    graph.remember("a")',
        '    graph.remember("b")',
        '    graph.link("a", "b")',
    ),
}


def describe() -> dict[str, Any]:
    """Return the manifest as plain JSON, fresh for each call."""
    return {
        "name": "adaptogen",
        "summary": _SUMMARY,
        "verbs": {
            family.__name__.lower(): [_entry(getattr(family, name)) for name in names]
            for family, names in VERBS.items()
        },
        "errorCodes": [str(code) for code in HINTS],
        "errorHints": {str(code): hint for code, hint in HINTS.items()},
        "guardDSL": guide(),
        "tunables": {
            key: {"default": row.default, "accepted": row.accepted, "meaning": row.meaning}
            for key, row in TUNABLES.items()
        },
        "patterns": {name: list(lines) for name, lines in _PATTERNS.items()},
    }


def _entry(method: Any) -> dict[str, str]:
    import inspect

    signature = inspect.signature(method)
    shown = signature.replace(parameters=list(signature.parameters.values())[1:])
    return {
        "name": method.__name__,
        "signature": f"{method.__name__}{shown}",
        "effect": method.verb,
        "summary": (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " "),
    }
