"""The manifest: what the package can do, as data. Command line and docs iterate it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from graphstate.errors import HINTS
from graphstate.event_types import EVENT_TYPES
from graphstate.guards import OPERATORS, guide
from graphstate.tunables import TUNABLES
from graphstate.verbs.activation import Activating
from graphstate.verbs.bundles import Bundles
from graphstate.verbs.composing import Composing
from graphstate.verbs.durability import Durability
from graphstate.verbs.embedding import Embedding
from graphstate.verbs.evolution import Evolution
from graphstate.verbs.fsm import Moving
from graphstate.verbs.governance import Governance
from graphstate.verbs.intuition import Intuition
from graphstate.verbs.learning import Learning
from graphstate.verbs.memory import Memory
from graphstate.verbs.observe import Observation
from graphstate.verbs.recollection import Recollection
from graphstate.verbs.replication import Replication
from graphstate.verbs.reshaping import Reshaping
from graphstate.verbs.soundness import Soundness
from graphstate.verbs.structure import Structure
from graphstate.verbs.succession import Succession
from graphstate.verbs.zones import Zones

__all__ = ("VERBS", "describe")

#: The verbs by family, in the order in which they are best read.
VERBS: Mapping[type, tuple[str, ...]] = {
    Memory: ("remember", "get_node", "set_status", "archive", "deprecate", "recall", "fts_enabled"),
    Embedding: ("reembed",),
    Replication: ("export_deltas", "import_deltas"),
    Structure: (
        "link", "depend", "unlink", "get_edge", "ready", "topo", "reachable", "ancestors", "descendants",
    ),
    Moving: ("set_cursor", "cursor", "legal_moves", "explain_transition", "transition"),
    Zones: (
        "define_zone", "set_zone_enforcement", "add_to_zone", "remove_from_zone", "delete_zone", "derive_zone",
        "zones_of", "zones",
    ),
    Governance: ("set_enforcement", "lock_policy", "unlock_policy", "locks"),
    Intuition: ("suggest", "step", "reward", "get_stat"),
    Activating: (
        "reinforce", "reinforce_all", "suppress", "release", "bump_attention", "effective", "activation",
        "top_activated", "register_memory_class",
    ),
    Succession: ("supersede", "unsupersede", "consolidate", "expand"),
    Recollection: ("pulse", "absorb", "spread", "working_memory", "recognise", "explain"),
    Learning: ("feedback", "weights", "set_weights"),
    Composing: ("plan", "orient"),
    Evolution: ("optimize", "reweight", "self_iterate", "gc", "pin", "unpin"),
    Reshaping: ("split_state", "merge_states", "migrate"),
    Soundness: ("validate", "repair"),
    Durability: (
        "snapshot", "checkpoint", "list_checkpoints", "rollback", "cuts", "compact", "rebuild",
        "verify_integrity", "set_tunable", "get_tunables",
    ),
    Bundles: ("export", "branch", "fork", "merge"),
    Observation: ("history", "changes", "subscribe", "metrics", "render", "to_mermaid", "to_dot", "head"),
}  # fmt: skip

_SUMMARY = "A graph that is memory, policy and intuition at once: an event log over one SQLite file."

_ENFORCEMENT: Mapping[str, Any] = {
    "levels": ("off", "soft", "hard"),
    "meaning": {
        "off": "the move is allowed, and the objection is only noted in its trace",
        "soft": "the move is allowed, flagged and counted; after escalationThreshold times the rule hardens",
        "hard": "the move is denied: the attempt is recorded, and the cursor stays",
    },
    "precedence": (
        "a failed guard has the mode of its edge, and defaultEnforcement if the edge has none",
        "a boundary that is crossed has the mode of each zone left or entered",
        "a move between two members of a zone has the mode of each zone that holds both",
        "the strictest of all these decides; no zone softens another one",
        "an edge that is off lifts the objections of zones: it is the gate; a locked zone yields to a locked gate only",
        "what hardened by itself relaxes after demotionCleanRuns clean moves, what an author set stays",
    ),
}

_ZONES: Mapping[str, str] = {
    "summary": "A zone is a set of nodes in which a cursor moves freely, while leaving and entering are governed.",
    "intra": "mode of moves between two members; soft if not given",
    "boundary": "mode of moves with one end among the members; hard if not given",
    "define_zone": "names the members and both modes; defining again replaces all of them",
    "derive_zone": (
        "proposes the active nodes that moves reach from a seed and that satisfy a guard; "
        "defines nothing unless told to with ratify"
    ),
}

_LITERALS = ("1", "-2.5", "'text'", '"text"', "true", "false", "null", "['a', 1]")

_TUNABLES = "Settings stored in the file: set_tunable changes one, get_tunables shows all."

_PATTERNS_SUMMARY = (
    "Lines of Python that run as they stand on a graph with nodes s0 and s1, an edge from s0 to s1 that is "
    "called edge, and the cursor on s0."
)

_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "minimal_session": (
        'graph.remember("research", payload={"topic": "caches"})',
        'graph.remember("draft")',
        'graph.link("research", "draft")',
        'graph.set_cursor(["research"])',
        'graph.transition("draft").unwrap().applied  # True',
        "graph.reward(1)",
    ),
    "build_a_workflow": (
        "graph.plan(",
        "    {",
        '        "nodes": ["research", {"id": "draft", "kind": "task"}, "review"],',
        '        "transitions": [["research", "draft"], ["draft", "review", {"weight": 2}]],',
        '        "deps": [["draft", "research"]],',
        '        "cursor": ["research"],',
        "    }",
        ").unwrap()",
        "graph.cursor()  # ['research']",
    ),
    "orient_then_act": (
        "now = graph.orient()",
        "if not now.done:",
        "    graph.step(now.suggestions[0].to, reward=1)",
        "graph.cursor()  # ['s1']",
    ),
    "step_loop": (
        "result = graph.step(reward=1)",
        "while result.ok and not result.value.done:",
        "    result = graph.step(reward=1)",
    ),
    "guarded_move": (
        'graph.remember("ship", tags=["ready"])',
        """graph.link("s0", "ship", guard="vars.approved == true && toTags has 'ready'", enforcement="hard")""",
        'graph.transition("ship").unwrap().applied  # False',
        'graph.transition("ship", vars={"approved": True}).unwrap().applied  # True',
    ),
    "zones": (
        'graph.define_zone("safe", ["s0", "s1"], intra="off", boundary="hard")',
        'graph.remember("outside")',
        'exit = graph.link("s0", "outside").unwrap()',
        'graph.transition("outside").unwrap().applied  # False',
        'graph.set_enforcement(exit.id, "off")  # the gate',
        'graph.transition("outside").unwrap().applied  # True',
    ),
    "derive_a_zone": (
        """found = graph.derive_zone("s0", "kind == 'state'").unwrap()""",
        "found.members  # ('s0', 's1')",
        'graph.define_zone("region", found.members)',
    ),
    "reward_decay": (
        'graph.link("s1", "s0")',
        'graph.transition("s1")',
        'graph.transition("s0")',
        "graph.reward(1, trace=True, depth=2, lambda_=0.5).unwrap().scopes  # 4",
    ),
    "checkpoint_rollback": (
        'graph.checkpoint("before")',
        'graph.remember("risky")',
        'graph.rollback("before", reason="did not work")',
        'graph.get_node("risky")  # None',
    ),
    "self_evolution": (
        "graph.optimize()  # what experience suggests; changes nothing",
        "graph.self_iterate(min_age=0)  # the safe part, all or nothing",
        'graph.set_status("s1", "active")  # what was set aside comes back with its edges',
    ),
    "retry_without_repeating": (
        'graph.reward(1, edge_id=edge.id, cause="run-7/reward")',
        'graph.reward(1, edge_id=edge.id, cause="run-7/reward").repeated  # True, and credited once',
    ),
    "policy": (
        'graph.link("s0", "s1", id="ship", guard="vars.approved == true", enforcement="hard")',
        'graph.transition(edge_id="ship").value.trace.reasons  # denied: guard failed',
        'graph.transition(edge_id="ship", vars={"approved": True}).value.applied  # True',
    ),
    "zones_that_stay": (
        'graph.derive_zone("s0", "toKind == \'state\'", ratify=True, name="known", intra="off")',
        'graph.lock_policy("zone", "known", reason="reviewed")',
        "graph.legal_moves()",
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
    "what_is_present": (
        'graph.reinforce("s0", 0.5, reason="read").unwrap().reinforcement_count  # 1',
        'graph.reinforce("s1", 0.3, context="paris")',
        "[found.id for found in graph.top_activated(limit=2)]  # ['s0', 's1']",
        '[found.id for found in graph.top_activated(context="paris")]  # ["s1"]',
        'graph.suppress("s0", 1, reason="stale")',
        "[found.id for found in graph.top_activated()]  # ['s1']",
        'graph.release("s0")',
    ),
    "a_fact_that_changed": (
        'graph.remember("oslo", label="lives in Oslo", memory={"source": "letter", "observed_at": 1000})',
        'graph.remember("rome", label="lives in Rome", memory={"source": "call", "observed_at": 2000})',
        'graph.supersede("rome", "oslo").unwrap().valid_to  # 2000',
        '[node.id for node in graph.recall(text="lives", as_of=1500)]  # ["oslo"]',
        '[node.id for node in graph.recall(text="lives", as_of=2500)]  # ["rome"]',
        'graph.unsupersede("oslo")',
    ),
    "one_memory_of_several": (
        'graph.reinforce_all([{"id": "s0", "amount": 0.5}, {"id": "s1", "amount": 0.5}]).unwrap().count  # 2',
        'graph.consolidate("both", ["s0", "s1"], label="what they have in common")',
        'round(graph.effective("both"), 2)  # 0.75',
        '[node.id for node in graph.expand("both")]  # ["s0", "s1"]',
    ),
    "what_comes_to_mind": (
        'graph.remember("build", kind="fact", payload={"text": "the build uses ninja"})',
        'graph.remember("ninja", kind="fact", payload={"text": "a small tool"})',
        'graph.link("build", "ninja", kind="reference", label="about")',
        'found = graph.pulse("how does the build work?", log=True)',
        "[hit.id for hit in found.hits]  # ['build', 'ninja']",
        'graph.spread(["build"]).reached  # {"ninja": 0.5}',
        'graph.feedback(found.retrieval_id, "build", True).unwrap().useful  # True',
        'graph.absorb("how does the build work?")',
        "[item.id for item in graph.working_memory(token_budget=200, diversity=0.3).items]  # ['build']",
    ),
    "follow_events": (
        "told = []",
        "with graph.subscribe(told.append):",
        '    graph.remember("news")',
        "told[-1].summary  # 'node news (state)'",
    ),
}


def describe() -> dict[str, Any]:
    """Return the manifest as plain JSON, fresh for each call."""
    return {
        "name": "adaptogen",
        "summary": _SUMMARY,
        "enforcement": {
            "levels": list(_ENFORCEMENT["levels"]),
            "meaning": dict(_ENFORCEMENT["meaning"]),
            "precedence": list(_ENFORCEMENT["precedence"]),
        },
        "verbs": {
            family.__name__.lower(): [_entry(getattr(family, name)) for name in names]
            for family, names in VERBS.items()
        },
        "errorCodes": [str(code) for code in HINTS],
        "errorHints": {str(code): hint for code, hint in HINTS.items()},
        "guardDSL": {
            **guide(),
            "operators": [part for row in OPERATORS for part in _symbols(row)],
            "literals": list(_LITERALS),
            "operatorNotes": dict(OPERATORS),
        },
        "zones": dict(_ZONES),
        "tunables": {
            "summary": _TUNABLES,
            "defaults": {key: deepcopy(row.default) for key, row in TUNABLES.items()},
            "ranges": {key: row.accepted for key, row in TUNABLES.items()},
            "meaning": {key: row.meaning for key, row in TUNABLES.items()},
        },
        "events": {
            name: {"payload": dict(row.payload), "effect": row.effect} for name, row in EVENT_TYPES.items()
        },
        "patterns": {
            "summary": _PATTERNS_SUMMARY,
            **{name: list(lines) for name, lines in _PATTERNS.items()},
        },
    }


def _symbols(forms: str) -> list[str]:
    """Return the operators that a row of forms, such as ``a < b, a <= b``, is about."""
    return [
        part for part in forms.replace(",", " ").replace("!a", "!").split() if part not in ("a", "b", "a.b")
    ]


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
