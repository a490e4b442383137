"""Every list that is written twice agrees with itself."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import graphstate
from graphstate import HINTS, Adaptogen, DState, ErrorCode, Fail, Ok, VerbFailed, is_err, is_ok
from graphstate._canonical import decode, encode
from graphstate.errors import shown
from graphstate.manifest import VERBS, describe
from tests.graphstate.conftest import Make


def listed() -> set[str]:
    return {name for names in VERBS.values() for name in names}


def test_the_facade_lists_each_verb_of_each_family_once() -> None:
    marked = {name for name, value in vars(Adaptogen).items() if hasattr(value, "verb")}
    assert listed() == marked
    for family, names in VERBS.items():
        own = {name for name, value in vars(family).items() if hasattr(value, "verb")}
        assert own == set(names)
        for name in names:
            assert getattr(Adaptogen, name) is getattr(family, name)


def test_every_name_in_all_exists() -> None:
    assert sorted(graphstate.__all__) == sorted(set(graphstate.__all__))
    assert all(hasattr(graphstate, name) for name in graphstate.__all__)
    assert DState is Adaptogen


def test_every_code_has_a_hint() -> None:
    assert set(HINTS) == set(ErrorCode)
    assert all(HINTS.values())
    assert describe()["errorHints"] == {str(code): hint for code, hint in HINTS.items()}


def test_every_verb_that_changes_takes_a_cause_and_an_actor() -> None:
    for names in VERBS.values():
        for name in names:
            method = getattr(Adaptogen, name)
            assert inspect.getdoc(method), name
            parameters = inspect.signature(method).parameters
            if name != "explain_transition":
                assert (method.verb == "changes") == ("cause" in parameters), name
            if "cause" in parameters:
                assert "actor" in parameters
                assert parameters["cause"].kind is inspect.Parameter.KEYWORD_ONLY
            optional = [p for p in parameters.values() if p.default is not p.empty]
            assert all(p.kind is p.KEYWORD_ONLY for p in optional if p.name not in ("to", "done")), name


def test_the_manifest_is_json_and_fresh() -> None:
    manifest = describe()
    assert decode(encode(manifest)) == manifest
    manifest["verbs"].clear()
    assert describe()["verbs"]
    assert set(manifest) == {
        "name", "summary", "verbs", "errorCodes", "errorHints", "guardDSL", "tunables", "patterns",
    }  # fmt: skip


def test_every_pattern_runs(make: Make) -> None:
    for name, lines in describe()["patterns"].items():
        graph = make("s0", "s1")
        edge = graph.link("s0", "s1").unwrap()
        graph.set_cursor(["s0"]).unwrap()
        scope: dict[str, Any] = {"graph": graph, "edge": edge}
        exec("\n".join(lines), scope)  # our own documentation
        assert graph.store.head().seq > 4 or graph.metrics().cuts, name
        assert graph.verify_integrity(deep=True).ok


def test_results_unwrap_or_raise() -> None:
    ok, fail = Ok(3), Fail(ErrorCode.NO_MOVES, "nowhere to go")
    assert (ok.unwrap(), ok.ok, is_ok(ok), is_err(ok)) == (3, True, True, False)
    assert (fail.ok, is_ok(fail), is_err(fail), fail.hint) == (False, False, True, HINTS[ErrorCode.NO_MOVES])
    with pytest.raises(VerbFailed, match="NoMoves: nowhere to go") as caught:
        fail.unwrap()
    assert (caught.value.code, caught.value.hint) == ("NoMoves", HINTS[ErrorCode.NO_MOVES])
    assert fail.to_json() == {
        "code": "NoMoves",
        "message": "nowhere to go",
        "hint": HINTS[ErrorCode.NO_MOVES],
    }
    detailed = Fail(ErrorCode.CONFLICT, "x", {"current": 1, "hint": "own"})
    assert detailed.to_json()["details"] == {"current": 1, "hint": "own"}
    assert detailed.hint == "own"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value", [Hostile(), 10**5_000, "x" * 1_000, "\ud800"], ids=["repr", "int", "long", "surrogate"]
)
def test_messages_can_show_anything(make: Make, value: Any) -> None:
    assert len(shown(value)) <= 80
    refused = make().remember(value)
    assert isinstance(refused, Fail)
    refused.message.encode()
