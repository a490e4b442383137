"""One valid bundle with every single change: it has the clean import's effect, or none at all.

A sample by default, all of them with `RELIABILITY=full`. The second half plays somebody who can
compute hashes: there the checks of each event must hold by themselves.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graphstate import Adaptogen, Row, VerbFailed
from graphstate._canonical import Json, decode, encode, encode_text
from graphstate.bundle import MAX_LINE
from graphstate.store.snapshot import LOAD_ROW
from graphstate.verbs.admission import EVENTS, OWN_AFFAIRS
from graphstate.verbs.restoring import STATE, STATE_LEFT_OUT
from tests.graphstate.bundles import (
    bundle_of,
    invariants,
    live,
    populate,
    prune,
    rechained,
    rows_of,
    taken_in,
)
from tests.graphstate.conftest import Clock, Golden

pytestmark = pytest.mark.timeout(1_800)

FULL = os.environ.get("RELIABILITY") == "full"


@cache
def clean() -> bytes:
    with Adaptogen.open(seed=False, now=Clock(), rand=Golden()) as graph:
        return bundle_of(populate(graph))


@cache
def compacted() -> bytes:
    with Adaptogen.open(seed=False, now=Clock(), rand=Golden()) as graph:
        prune(populate(graph))
        graph.remember("d").unwrap()
        graph.step(reward=1).unwrap()
        return bundle_of(graph)


def others(value: Json) -> Iterator[Json]:
    """Values that stand where one value stood."""
    yield from (None, [], {}, [value])
    if isinstance(value, bool) or value is None:
        yield from (not value, 0, "")
    elif isinstance(value, (int, float)):
        yield from (value + 1, -value - 1, str(value), True, 1e300, 2**63, 10**400)
    elif isinstance(value, str):
        yield from ("", value + "x", value[1:], value.upper(), value + "\n", "\u202e", 1, "a" * 2_000)
    elif isinstance(value, list):
        yield from (value + value, value[:-1], [*value, None], value[::-1])
    else:
        yield value | {"extra": 1}
        for key in value:
            yield {k: v for k, v in value.items() if k != key}


def changed(value: Json) -> Iterator[Json]:
    """The value with one place in it changed."""
    for other in others(value):
        if encode_text(other) != encode_text(value):
            yield other
    if isinstance(value, dict):
        for key, member in value.items():
            for other in changed(member):
                yield value | {key: other}
    elif isinstance(value, list):
        for place, member in enumerate(value):
            for other in changed(member):
                yield [*value[:place], other, *value[place + 1 :]]


def mutations(bundle: bytes) -> Iterator[bytes]:
    lines = bundle.splitlines(keepends=True)
    for place, line in enumerate(lines):
        before, after = b"".join(lines[:place]), b"".join(lines[place + 1 :])
        for value in changed(decode(line)):
            yield before + encode(value) + b"\n" + after
        first = line[1:].partition(b",")[0]
        for text in (
            b"", line + line, line[:-1], b" " + line, line[:-1] + b" \n", b"\n" + line, line.replace(b"{", b"{" + first + b",", 1),
            line.replace(b":1", b":1e400"), line.replace(b":1", b":NaN"), line.replace(b'"a"', b'"\\ud800"'),
            line.replace(b'"a"', b'"\\u0061"'), b"\xef\xbb\xbf" + line, b"[" * 200 + b"]" * 200 + b"\n",
            line[:-2] + b"\xff}\n", line[:-2] + b" " * MAX_LINE + b"}\n", b"null\n",
        ):  # fmt: skip
            if text != line:
                yield before + text + after
        for other in range(place):
            swapped = lines.copy()
            swapped[place], swapped[other] = swapped[other], swapped[place]
            yield b"".join(swapped)
    step = 16 if FULL else 211
    yield from (bundle[:end] for end in range(0, len(bundle), step))
    yield bundle + b"\n"
    yield bundle + lines[1]
    yield bundle + bundle


def sample(items: list[Any], most: int) -> list[Any]:
    return items if FULL else items[:: max(1, len(items) // most)]


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("make", [clean, compacted], ids=["from the beginning", "with a base"])
def test_a_changed_bundle_has_the_same_effect_or_none(make: Any, tmp_path: Path) -> None:
    bundle = make()
    variants = list(mutations(bundle))
    assert len(variants) > 2_000
    with taken_in(bundle) as copy:
        wanted = live(copy)
    Adaptogen.open(tmp_path / "empty.db", seed=False).close()
    target, refused = tmp_path / "target.db", 0
    for variant in sample(variants, 250):
        shutil.copy(tmp_path / "empty.db", target)
        before = digests(tmp_path)
        state = outcome(variant, target)
        if state is None:
            refused += 1
            assert digests(tmp_path) == before, variant
        else:
            assert state == wanted, variant
    assert refused


def outcome(bundle: bytes, target: Path) -> dict[str, Any] | None:
    """The live state that a bundle makes, None if it is refused."""
    try:
        with taken_in(bundle, target) as copy:
            return live(copy)
    except VerbFailed:
        return None


def test_a_file_that_did_not_exist_does_not_exist_after_a_refusal(tmp_path: Path) -> None:
    lines = clean().splitlines(keepends=True)
    for broken in (b"".join(lines[:-1]), b"".join((*lines[:-2], lines[-1])), b""):
        with pytest.raises(VerbFailed):
            taken_in(broken, tmp_path / "new.db")
        assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------- with fitting hashes


def forged(rows: list[Row]) -> Iterator[bytes]:
    """The events with one thing changed, and hashes that fit again."""
    for place, row in enumerate(rows):
        before, after = rows[:place], rows[place + 1 :]
        for body in changed(decode(row.body)):
            if isinstance(body, dict):
                yield rechained([*before, row._replace(body=encode(body)), *after])
        for other in (
            *(row._replace(type=name) for name in ("", "nodeupserted", "StateRestored", "Imported", "Merged", *EVENTS)),
            *(row._replace(actor=name) for name in (None, "", "no body", "x" * 500, "a/b")),
            *(row._replace(trust=name) for name in (None, "", "root")),
            row._replace(id=None), row._replace(id=""), row._replace(at=-(2**40)), row._replace(cause="x"),
        ):  # fmt: skip
            if other != row:
                yield rechained([*before, other, *after])
        yield rechained([*before, *after])
        yield rechained([*before, row, row, *after])
        if place:
            yield rechained([*before[:-1], row, before[-1], *after])


def test_a_forged_bundle_is_refused_or_makes_a_sound_graph() -> None:
    variants = list(forged(rows_of(clean())))
    taken = refused = 0
    for variant in sample(variants, 250):
        try:
            copy = taken_in(variant)
        except VerbFailed:
            refused += 1
            continue
        with copy:
            invariants(copy)
            assert copy.remember("afterwards").ok
            copy.suggest()
            taken += 1
    assert taken
    assert refused > taken / 4


NODE: dict[str, Any] = {
    "id": "n", "kind": "state", "label": "", "payload": {}, "tags": [], "status": "active", "embedding": None,
}  # fmt: skip
EDGE: dict[str, Any] = {
    "id": "e", "src": "a", "dst": "b", "kind": "transition", "label": "", "guard": None, "enforcement": None,
    "weight": 1,
}  # fmt: skip
MOVE = {"edgeId": "ab", "from": "a", "to": "b", "clean": True}
REWARD = {"value": 1, "alpha": 0.3, "scopes": [{"kind": "edge", "id": "ab", "weight": 1}]}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("NodeUpserted", NODE | {"id": "-n"}, "InvalidInput"),
    ("NodeUpserted", NODE | {"id": "n\n"}, "InvalidInput"),
    ("NodeUpserted", NODE | {"kind": "a\u200bb"}, "InvalidInput"),
    ("NodeUpserted", NODE | {"label": "x" * 1_025}, "InvalidInput"),
    ("NodeUpserted", NODE | {"payload": "x" * 262_144}, "PayloadTooLarge"),
    ("NodeUpserted", NODE | {"tags": ["p", "p"]}, "InvalidInput"),
    ("NodeUpserted", NODE | {"tags": [str(i) for i in range(65)]}, "InvalidInput"),
    ("NodeUpserted", NODE | {"status": "gone"}, "InvalidInput"),
    ("NodeUpserted", NODE | {"embedding": []}, "InvalidInput"),
    ("NodeUpserted", NODE | {"embedding": [True]}, "InvalidInput"),
    ("NodeUpserted", NODE | {"embedding": [0] * 8_193}, "InvalidInput"),
    ("NodeStatusChanged", {"id": "nobody", "status": "active"}, "NotFound"),
    ("EdgeUpserted", EDGE | {"src": "nobody"}, "NotFound"),
    ("EdgeUpserted", EDGE | {"dst": "nobody"}, "NotFound"),
    ("EdgeUpserted", EDGE | {"kind": "other"}, "InvalidInput"),
    ("EdgeUpserted", EDGE | {"weight": -1}, "InvalidInput"),
    ("EdgeUpserted", EDGE | {"enforcement": "firm"}, "InvalidInput"),
    ("EdgeUpserted", EDGE | {"guard": "(("}, "GuardParseError"),
    ("EdgeUpserted", EDGE | {"kind": "dependency", "src": "c", "dst": "a"}, "CycleRejected"),
    ("EdgeUpserted", EDGE | {"kind": "dependency", "dst": "a"}, "CycleRejected"),
    ("EdgeRemoved", {"id": "nothing"}, "NotFound"),
    ("ZoneDefined", {"name": "z", "members": ["nobody"], "intra": "soft", "boundary": "hard"}, "NotFound"),
    ("ZoneDefined", {"name": "z", "members": [], "intra": "firm", "boundary": "hard"}, "InvalidInput"),
    ("ZoneMembership", {"zone": "z", "node": "nobody", "op": "add"}, "NotFound"),
    ("ZoneMembership", {"zone": "z", "node": "a", "op": "drop"}, "InvalidInput"),
    ("EnforcementChanged", {"scope": "edge", "id": "nothing", "mode": "hard"}, "NotFound"),
    ("EnforcementChanged", {"scope": "all", "id": "ab", "mode": "hard"}, "InvalidInput"),
    ("EnforcementChanged", {"scope": "edge", "id": "ab", "mode": "firm"}, "InvalidInput"),
    ("CursorMoved", {"set": ["nobody"]}, "NotFound"),
    ("CursorMoved", {"set": "a"}, "InvalidInput"),
    ("TransitionTaken", MOVE | {"edgeId": "dep"}, "InvalidInput"),
    ("TransitionTaken", MOVE | {"to": "c"}, "InvalidInput"),
    ("TransitionTaken", MOVE | {"clean": 1}, "InvalidInput"),
    ("BlockedAttempt", MOVE | {"reason": None}, "InvalidInput"),
    ("SoftViolation", {"edgeId": "nothing", "reason": ""}, "NotFound"),
    ("RewardApplied", REWARD | {"value": 1e7}, "InvalidInput"),
    ("RewardApplied", REWARD | {"alpha": 2}, "InvalidInput"),
    ("RewardApplied", REWARD | {"scopes": [{"kind": "zone", "id": "z", "weight": 1}]}, "InvalidInput"),
    ("RewardApplied", REWARD | {"scopes": [1]}, "InvalidInput"),
    ("ConfigSet", {"key": "epsilon", "value": 5}, "InvalidConfig"),
    ("ConfigSet", {"key": "unknown", "value": 5}, "InvalidConfig"),
    (
        "Imported",
        {"origin": "a b", "to": 1, "head": "1:" + "0" * 64, "from": 1, "imported": 1},
        "InvalidInput",
    ),
    ("Imported", {"origin": "ab", "to": 1, "head": "1:" + "0" * 64, "from": 1}, "InvalidInput"),
    ("Merged", {"origin": "ab", "to": 1, "head": "1:xyz", "from": 1, "merged": 1}, "InvalidInput"),
    ("Migrated", {"kind": "fact", "toVersion": 2}, "InvalidInput"),
    ("StateRestored", {"table": "meta", "row": []}, "InvalidInput"),
    ("StateRestored", {"table": "node", "row": [1]}, "InvalidInput"),
    ("StateRestored", {"table": "state", "row": ["head", "{}"]}, "InvalidInput"),
]


@pytest.mark.parametrize(
    ("type", "body", "code"), REFUSED, ids=[f"{t}-{i}" for i, (t, _, _) in enumerate(REFUSED)]
)
def test_an_event_that_no_verb_would_make_is_refused(
    type: str, body: dict[str, Any], code: str, tmp_path: Path
) -> None:
    rows = rows_of(clean())
    bad = rows[-1]._replace(type=type, body=encode(body), actor="developer")
    with pytest.raises(VerbFailed) as refused:
        taken_in(rechained([*rows, bad]), tmp_path / "new.db")
    assert (refused.value.code, refused.value.details["line"]) == (code, len(rows) + 2)
    assert list(tmp_path.iterdir()) == []


def test_a_guard_that_compiles_arrives() -> None:
    rows = rows_of(clean())
    edge = rows[-1]._replace(type="EdgeUpserted", body=encode(EDGE | {"guard": "to.open == true"}))
    with taken_in(rechained([*rows, edge])) as copy:
        arrived = copy.get_edge("e")
        assert arrived is not None
        assert arrived.guard == "to.open == true"


def test_every_event_that_is_folded_or_shown_is_known_to_the_import() -> None:
    with Adaptogen.open(seed=False) as graph:
        folded = set(graph.store.projection.folds)
    assert folded <= set(EVENTS) | OWN_AFFAIRS
    assert set(LOAD_ROW) <= set(STATE) | STATE_LEFT_OUT


def test_locks_that_a_bundle_claims_bind_nobody() -> None:
    rows = rows_of(clean())
    lock = rows[-1]._replace(
        type="PolicyLocked", body=encode({"scope": "tunables", "id": "*", "reason": "mine"})
    )
    with taken_in(rechained([*rows, lock])) as copy:
        assert copy.imported is not None
        assert copy.imported.left_out == 1
        assert copy.set_tunable("epsilon", 0.5).ok
        assert "PolicyLocked" not in {row.type for row in copy.store.read("graph")}


def test_a_line_may_be_long_but_not_longer(tmp_path: Path) -> None:
    with Adaptogen.open(seed=False) as graph:
        graph.set_tunable("maxPayloadBytes", 2**30).unwrap()
        graph.remember("big", payload="é" * 524_000).unwrap()
        deep: Any = 1
        for _ in range(97):
            deep = [deep]
        graph.remember("deep", payload=deep).unwrap()
        with taken_in(bundle_of(graph)) as copy:
            assert live(copy) == live(graph)
    with pytest.raises(VerbFailed, match="bytes allowed"):
        taken_in(clean().splitlines(keepends=True)[0] + b"[" + b" " * MAX_LINE + b"]\n")
