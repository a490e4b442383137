"""One ordinary call of every command, on a graph where all of them succeed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphstate.adaptogen import Adaptogen

__all__ = ("EXAMPLES", "sow")

#: Where the log of in.jsonl ends.
ELSEWHERE = "1:0bae68582bfe0f9df7d6bd012231d3b0a22bb940c367a20990be54ed2f515315"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "status": (),
    "render": (),
    "suggest": ("--vars", '{"ok": true}'),
    "explain": ("b", "--edge-id", "ab", "--vars", "{}"),
    "legal-moves": ("--vars", "{}"),
    "ready": ("a", "b"),
    "topo": (),
    "get": ("a",),
    "recall": (
        *("--text", "alpha", "--kind", "fact", "--tag", "red", "--status", "active"),
        *("--limit", "3", "--id", "a", "--embedding", "[1, 0]"),
    ),
    "history": ("5", "--type", "NodeUpserted", "--node", "a", "--edge", "a", "--from-seq", "1"),
    "metrics": (),
    "verify": ("--deep",),
    "describe": (),
    "remember": (
        *("new", "--kind", "task", "--label", "New one", "--payload", '{"x": 1}', "--tags", "p,q"),
        *("--status", "active", "--embedding", "[0.5, 1]", "--expect-version", "0", "--cause", "first"),
    ),
    "link": (
        *("a", "c", "--id", "ac", "--kind", "transition", "--label", "go", "--weight", "2.5"),
        *("--enforcement", "soft", "--upsert", "--expect-version", "0", "--cause", "second"),
    ),
    "depend": ("c", "a", "--id", "dep", "--label", "first a", "--cause", "third"),
    "unlink": ("ab", "--cause", "fourth"),
    "archive": ("c", "--cause", "fifth"),
    "deprecate": ("c", "--cause", "sixth"),
    "cursor": ("a", "b", "--cause", "seventh"),
    "transition": ("b", "--edge-id", "ab", "--vars", "{}", "--cause", "eighth"),
    "step": ("b", "--reward", "0.5", "--vars", "{}", "--cause", "ninth"),
    "reward": (*("1", "--edge-id", "ab", "--trace", "--depth", "3", "--lambda", "0.5", "--cause", "tenth"),),
    "checkpoint": ("later", "--cause", "eleventh"),
    "rollback": ("start", "--reason", "as an example"),
    "checkpoints": (),
    "tunables": (),
    "export": ("out.jsonl", "--overwrite"),
    "import": ("in.jsonl", "--merge", "--on-conflict", "ours", "--expect-head", ELSEWHERE),
    "branch": ("apart.db",),
    "merge": ("branch.db", "--on-conflict", "theirs", "--cause", "thirteenth"),
    "set-tunable": ("explore", '"greedy"', "--cause", "twelfth"),
}


def sow(path: Path) -> None:
    """Make a file with nodes a, b, c, an edge ab, a checkpoint start, the cursor on a.

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
        graph.checkpoint("start").unwrap()
        graph.set_cursor(["a"]).unwrap()
        with graph.branch(path.with_name("branch.db")).unwrap() as branch:
            branch.remember("news").unwrap()
