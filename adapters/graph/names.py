"""How facts, runs, tasks and edges are called in a graph.

Ids of a graph are letters, digits and ``. _ : -`` up to 128 of them, a percent sign is not
among them. What else a name holds is written byte by byte as ``--HH``; a single hyphen between
letters or digits stays as it is, so two names never become one. What is too long ends in a
digest behind ``::``, which no encoded name contains.
"""

from __future__ import annotations

import hashlib
import re

__all__ = (
    "actor_of",
    "dependency_id",
    "memory_id",
    "move_id",
    "retry_id",
    "run_node_id",
    "start_id",
    "symbolic_id",
    "write_cause",
)

_MAX_ID = 128
_MAX_SCOPE = 40
_MAX_CAUSE = 256
_DIGEST = 24
_OTHERS = re.compile(r"[^A-Za-z0-9._-]|(?<![A-Za-z0-9])-|-(?![A-Za-z0-9])")


def _escape(match: re.Match[str]) -> str:
    return "".join(f"--{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]


def _part(text: str, most: int) -> str:
    """Return the text as part of an id, at most that many characters long."""
    encoded = _OTHERS.sub(_escape, text)
    if len(encoded) <= most:
        return encoded
    return f"{encoded[: most - _DIGEST - 2]}::{_digest(text)}"


def symbolic_id(scope: str, name: str) -> str:
    """Return the node of a symbolic fact; ``sym:default:a`` for the fact ``a``."""
    start = f"sym:{_part(scope, _MAX_SCOPE)}:"
    return start + _part(name, _MAX_ID - len(start))


def memory_id(record: str) -> str:
    """Return the node of a remembered record."""
    return f"memory:{_part(record, _MAX_ID - 7)}"


def run_node_id(run: str) -> str:
    """Return the node of a run; the inner run ``R/1`` is ``run:R:1``."""
    joined = "run:" + ":".join(_part(part, _MAX_ID) for part in run.split("/"))
    return joined if len(joined) <= _MAX_ID else f"{joined[: _MAX_ID - _DIGEST - 2]}::{_digest(run)}"


def start_id(task: str) -> str:
    """Return the node where every run of a task begins."""
    return f"start:{_part(task, _MAX_ID - 6)}"


def actor_of(task: str) -> str:
    """Return whose cursor walks through a task."""
    return f"task:{_part(task, _MAX_ID - 5)}"


def move_id(source: str, target: str) -> str:
    """Return the edge that is taken when ``target`` is worked on after ``source``."""
    return f"go:{_part(source, 62)}:{_part(target, 62)}"


def retry_id(node: str) -> str:
    """Return the edge from a node that failed to itself."""
    return f"again:{_part(node, 122)}"


def dependency_id(node: str, prerequisite: str) -> str:
    """Return the edge that says that a node comes after another."""
    return f"needs:{_part(node, 60)}:{_part(prerequisite, 60)}"


def write_cause(run: str, what: str) -> str:
    """Return the cause of one write of a run, by which a repeated one is recognised."""
    cause = f"{run}/{what}"
    if cause.isprintable() and len(cause.encode()) <= _MAX_CAUSE:
        return cause
    return f"{_digest(run)}/{_digest(what)}"
