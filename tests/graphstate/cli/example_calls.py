"""One ordinary call of every command, on a graph where all of them succeed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphstate.adaptogen import Adaptogen

__all__ = ("ENDING", "EXAMPLES", "sow")

#: Where the log of in.jsonl ends.
ELSEWHERE = "1:0bae68582bfe0f9df7d6bd012231d3b0a22bb940c367a20990be54ed2f515315"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "status": (),
    "render": (),
    "suggest": ("--vars", '{"ok": true}'),
    "explain": ("b", "--edge-id", "ab", "--head", "a", "--vars", "{}"),
    "legal-moves": ("--vars", "{}"),
    "ready": ("a", "b"),
    "topo": (),
    "get": ("a",),
    "recall": (
        *("--text", "alpha", "--kind", "fact", "--tag", "red", "--status", "active"),
        *("--limit", "3", "--id", "a", "--embedding", "[1, 0]", "--embedder", "hashing"),
        *("--as-of", "9000000000000"),
    ),
    "history": (
        *(
            "5",
            "--type",
            "NodeUpserted",
            "--node",
            "a",
            "--edge",
            "a",
            "--by",
            "developer",
            "--from-seq",
            "1",
        ),
    ),
    "changes": ("1", "--cuts", "0", "--limit", "2"),
    "watch": ("--present", "--context", "x", "--after", "0", "--limit", "1", "--interval-ms", "10"),
    "graph": (),
    "dot": (),
    "orient": ("--vars", "{}"),
    "optimize": ("--min-age", "0"),
    "validate": (),
    "metrics": (),
    "head": (),
    "verify": ("--deep", "--expect-head", f"0:{'0' * 64}"),
    "describe": (),
    "remember": (
        *("new", "--kind", "task", "--label", "New one", "--payload", '{"x": 1}', "--tags", "p,q"),
        *("--status", "active", "--embedding", "[0.5, 1]", "--embed", "--embedder", "hashing"),
        *("--expect-version", "0", "--memory", '{"source": "a letter", "confidence": 0.5}'),
        *("--cause", "first"),
    ),
    "reembed": ("--stale", "--batch", "2", "--limit", "3", "--embedder", "hashing", "--cause", "22nd"),
    "top": (
        *("--limit", "3", "--context", "x", "--context-fallback", "--min-score", "0.1"),
        *("--include-superseded",),
        *("--at", "9000000000000"),
    ),
    "activation": ("a", "--at", "9000000000000"),
    "effective": ("a", "--context", "x", "--include-superseded", "--at", "9000000000000"),
    "expand": ("a",),
    "reinforce": (
        *("a", "0.5", "--context", "x", "--outcome", "useful", "--reason", "read", "--cause", "memory-1"),
    ),
    "reinforce-all": ('[{"id": "a", "amount": 0.5}]', "--cause", "memory-2"),
    "suppress": ("a", "0.5", "--context", "x", "--reason", "stale", "--cause", "memory-3"),
    "release": ("a", "--amount", "0.5", "--context", "x", "--reason", "fresh", "--cause", "memory-4"),
    "supersede": ("b", "a", "--reason", "newer", "--cause", "memory-5"),
    "unsupersede": ("c", "--by", "a", "--reason", "wrong", "--cause", "memory-6"),
    "consolidate": (
        *("a", "b,c", "--suppress", "0.5", "--kind", "fact", "--label", "both", "--payload", '{"n": 2}'),
        *("--tags", "p", "--embedding", "[1, 0]", "--memory", '{"confidence": 1}', "--reason", "one topic"),
        *("--cause", "memory-7"),
    ),
    "memory-class": ("note", "semantic", "--cause", "memory-8"),
    "link": (
        *("a", "c", "--id", "ac", "--kind", "transition", "--label", "go", "--weight", "2.5"),
        *(
            "--enforcement",
            "soft",
            "--upsert",
            "--expect-version",
            "0",
            "--cause",
            "second",
            "--reason",
            "a way",
        ),
    ),
    "depend": ("c", "a", "--id", "dep", "--label", "first a", "--cause", "third"),
    "unlink": ("ab", "--expect-version", "1", "--reason", "not used", "--cause", "fourth"),
    "archive": ("c", "--cause", "fifth"),
    "deprecate": ("c", "--cause", "sixth"),
    "cursor": ("a", "b", "--expect-nodes", "a", "--reason", "start over", "--cause", "seventh"),
    "transition": ("b", "--edge-id", "ab", "--head", "a", "--vars", "{}", "--cause", "eighth"),
    "step": ("b", "--reward", "0.5", "--vars", "{}", "--cause", "ninth"),
    "reward": (*("1", "--edge-id", "ab", "--trace", "--depth", "3", "--lambda", "0.5", "--cause", "tenth"),),
    "pulse": (
        *("alpha", "--vector", "[1, 0]", "--limit", "3", "--scope", "me", "--context", "x", "--seeds", "5"),
        *("--depth", "1", "--edge-types", "transition,about", "--direction", "both"),
        *("--include-superseded", "--as-of", "9000000000000", "--log", "--embedder", "hashing"),
    ),
    "absorb": (
        *("alpha", "--vector", "[1, 0]", "--limit", "3", "--scope", "me", "--context", "x", "--seeds", "5"),
        *("--depth", "1", "--edge-types", "transition", "--direction", "both", "--threshold", "0.1"),
        *("--gain", "0.1", "--habituate", "--cause", "22nd", "--embedder", "hashing"),
    ),
    "spread": (
        *(
            "a,b",
            "--limit",
            "3",
            "--depth",
            "1",
            "--decay",
            "0.5",
            "--fan-beta",
            "0",
            "--edge-types",
            "transition",
        ),
        *("--direction", "both"),
    ),
    "working-memory": (
        *(
            "5",
            "--min-score",
            "0.1",
            "--scope",
            "me",
            "--context",
            "x",
            "--context-fallback",
            "--token-budget",
            "500",
        ),
        *("--diversity", "0.3", "--pinned", "a,b", "--density", "--include-superseded", "--log"),
    ),
    "recognise": (
        *('{"text": "alpha"}', "--kind", "fact", "--label", "alpha", "--vector", "[1, 0]", "--same", "0.9"),
        *("--limit", "2", "--embedder", "hashing"),
    ),
    "explain-memory": ("a",),
    "feedback": (
        *("R1", "a", "true", "--rate", "0.1", "--rule", "additive", "--scope", "me"),
        *("--signals", '{"lexical": 1}', "--cause", "23rd"),
    ),
    "weights": ("me",),
    "set-weights": ('{"usage": 0.5}', "--scope", "me", "--cause", "24th"),
    "plan": (
        "--spec",
        '{"nodes": ["p", "q"], "transitions": [["p", "q"]], "cursor": ["p"]}',
        "--cause",
        "13th",
    ),
    "reweight": ("--cause", "14th"),
    "self-iterate": ("--min-age", "0", "--cause", "15th"),
    "gc": ("--min-age", "0", "--cause", "16th"),
    "split": ("a", "a2", "ab", "--expect-version", "1", "--cause", "17th"),
    "merge-states": (*("a", "b", "--expect-version", "1", "--expect-gone-version", "1", "--cause", "18th"),),
    "pin": ("a", "--cause", "19th"),
    "unpin": ("a", "--cause", "20th"),
    "repair": ("--cause", "21st"),
    "checkpoint": ("later", "--cause", "eleventh"),
    "rollback": ("start", "--reason", "as an example"),
    "checkpoints": (),
    "cuts": (),
    "snapshot": ("--cause", "thirteenth"),
    "compact": ("2", "--cause", "fourteenth"),
    "rebuild": (),
    "tunables": (),
    "set-tunable": ("explore", '"greedy"', "--reason", "no experiments", "--cause", "twelfth"),
    "export": ("out.jsonl", "--overwrite"),
    "import": ("in.jsonl", "--merge", "--on-conflict", "ours", "--expect-head", ELSEWHERE),
    "export-deltas": ("--since", "9/0", "--threshold", "0.1", "--flush", "--cause", "23rd"),
    "import-deltas": ('{"ops": [], "cursor": "0/1", "carried": 0, "more": false}', "--cause", "24th"),
    "branch": ("apart.db",),
    "merge": ("branch.db", "--on-conflict", "theirs", "--cause", "thirteenth"),
    "enforce": (*("ab", "hard", "--expect-version", "1", "--reason", "it matters", "--cause", "c13"),),
    "zone-define": (
        *("yard", "a,b", "--intra", "off", "--boundary", "hard", "--expect-version", "1"),
        *("--reason", "safe", "--cause", "c14"),
    ),
    "zone-enforce": (
        *("yard", "--intra", "hard", "--boundary", "off", "--expect-version", "1"),
        *("--reason", "closed", "--cause", "c15"),
    ),
    "zone-add": ("yard", "a", "--expect-version", "1", "--reason", "belongs", "--cause", "c16"),
    "zone-remove": ("yard", "c", "--expect-version", "1", "--reason", "left", "--cause", "c17"),
    "zone-list": (),
    "zone-delete": ("yard", "--expect-version", "1", "--reason", "open", "--cause", "c18"),
    "zone-derive": (
        *("a", "--predicate", "toTags has 'red'", "--ratify", "--name", "red", "--intra", "off"),
        *("--boundary", "soft", "--cause", "c19"),
    ),
    "lock": ("edge", "ab", "--reason", "agreed", "--cause", "c20"),
    "unlock": ("tunables", "--reason", "tuning", "--cause", "c21"),
    "locks": (),
    "mcp": ("--http", "--port", "0", "--read-only", "--tools", "memory", "--embedder", "hashing"),
}

#: The commands that end by themselves; the others are served to somebody, and tested with him.
ENDING = tuple(name for name in EXAMPLES if name != "mcp")


def sow(path: Path) -> None:
    """Make a file with nodes a, b, c, an edge ab, a zone yard, c superseded by a, a checkpoint start, the cursor on a.

    Beside it lie in.jsonl, the bundle of another graph, and branch.db, a branch with news.
    """
    with Adaptogen.open(seed=False, now=lambda: 1, rand=lambda: 0.5) as other:
        other.remember("elsewhere").unwrap()
        other.export(path.with_name("in.jsonl")).unwrap()
    with Adaptogen.open(path, seed=False) as graph:
        graph.remember("a", label="alpha", kind="fact", tags=["red"], embedding=[1, 0]).unwrap()
        graph.remember("b").unwrap()
        graph.remember("c").unwrap()
        graph.link("a", "b", id="ab").unwrap()
        graph.define_zone("yard", ["c"], intra="off").unwrap()
        graph.lock_policy("tunables", reason="measured").unwrap()
        graph.supersede("a", "c").unwrap()
        graph.checkpoint("start").unwrap()
        graph.set_cursor(["a"]).unwrap()
        with graph.branch(path.with_name("branch.db")).unwrap() as branch:
            branch.remember("news").unwrap()
