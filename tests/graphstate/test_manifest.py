"""Every list that is written twice agrees with itself."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import graphstate
from graphstate import HINTS, TUNABLES, Adaptogen, DState, ErrorCode, Fail, Ok, VerbFailed, is_err, is_ok
from graphstate._canonical import decode, encode
from graphstate.errors import shown
from graphstate.guards import compile_guard, eval_guard
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
    names = vars(graphstate)["__all__"]
    assert sorted(names) == sorted(set(names))
    assert all(hasattr(graphstate, name) for name in names)
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
            assert all(
                p.kind is p.KEYWORD_ONLY for p in optional if p.name not in ("to", "done", "id", "predicate")
            ), name


def test_the_manifest_has_every_part_and_is_json() -> None:
    manifest = describe()
    assert decode(encode(manifest)) == manifest
    assert list(manifest) == [
        "name", "summary", "enforcement", "verbs", "errorCodes", "errorHints", "guardDSL", "zones", "tunables", "events",
        "patterns",
    ]  # fmt: skip
    assert {"summary", "operators", "literals", "context", "missingKey", "operatorNotes", "examples"} <= set(
        manifest["guardDSL"]
    )
    assert set(manifest["zones"]) == {"summary", "intra", "boundary", "define_zone", "derive_zone"}
    assert {
        "build_a_workflow", "orient_then_act", "minimal_session", "step_loop", "checkpoint_rollback", "reward_decay",
        "zones", "self_evolution",
    } <= set(manifest["patterns"])  # fmt: skip
    assert all(manifest["patterns"].values())


def containers(value: Any) -> Iterator[Any]:
    """Every list and object inside a value."""
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


def test_d45_the_manifest_shares_nothing_that_a_caller_could_change(make: Make) -> None:
    before = encode(describe())
    for part in containers(describe()):
        part.clear()
    for part in containers(make().describe()):
        part.clear()
    assert encode(describe()) == before


def test_d45_every_verb_of_the_manifest_is_there_with_its_parameters() -> None:
    for entries in describe()["verbs"].values():
        for entry in entries:
            method = getattr(Adaptogen, entry["name"])
            assert entry["signature"].startswith(f"{entry['name']}(")
            for parameter in list(inspect.signature(method).parameters)[1:]:
                assert parameter in entry["signature"]
            assert entry["summary"]
            assert entry["effect"] in ("changes", "reads")


def test_d45_every_tunable_is_documented_with_a_default_it_accepts(make: Make) -> None:
    shown = describe()["tunables"]
    graph = make()
    assert shown["defaults"] == graph.get_tunables()
    for part in ("defaults", "ranges", "meaning"):
        assert list(shown[part]) == list(TUNABLES)
    for key, default in shown["defaults"].items():
        assert graph.set_tunable(key, default).ok
        refused = graph.set_tunable(key, "no such value")
        assert isinstance(refused, Fail)
        assert shown["ranges"][key] in refused.message
        assert "describe()['tunables']" in refused.hint


def test_d45_every_mode_means_what_the_manifest_says(make: Make) -> None:
    shown = describe()["enforcement"]
    assert set(shown["meaning"]) == set(shown["levels"])
    for mode, decision in zip(shown["levels"], ("allow", "warn", "deny"), strict=True):
        graph = make("a", "b")
        graph.link("a", "b", guard="false", enforcement=mode).unwrap()
        graph.set_cursor(["a"]).unwrap()
        outcome = graph.transition("b").unwrap()
        assert outcome.trace.decision == decision
        assert outcome.applied == (decision != "deny")
        blocked = [entry.type for entry in graph.history(type="BlockedAttempt")]
        assert blocked == (["BlockedAttempt"] if mode == "hard" else [])


def test_d45_every_part_of_the_guard_language_compiles() -> None:
    shown = describe()["guardDSL"]
    for literal in shown["literals"]:
        compile_guard(f"vars.x == {literal}")
    for operator in shown["operators"]:
        compile_guard(f"{operator} a" if operator in ("!", "exists") else f"a {operator} b")
    for example in shown["examples"]:
        assert eval_guard(example["guard"], example["context"]) == example["passes"]
    assert not eval_guard("vars.missing != 1", {"vars": {}}), shown["missingKey"]


PATTERNS = {name: lines for name, lines in describe()["patterns"].items() if name != "summary"}


def claimed(lines: list[str], statement: ast.stmt) -> str | None:
    """The value that a comment behind an expression says it has."""
    assert statement.end_lineno is not None
    _, mark, comment = lines[statement.end_lineno - 1].partition("  # ")
    if not mark or not isinstance(statement, ast.Expr):
        return None
    for end in (comment, comment.partition(", and ")[0]):
        with suppress(ValueError, SyntaxError):
            ast.literal_eval(end)
            return end
    return None


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_runs_and_says_the_truth(make: Make, name: str) -> None:
    lines = PATTERNS[name]
    graph = make("s0", "s1")
    edge = graph.link("s0", "s1").unwrap()
    graph.set_cursor(["s0"]).unwrap()
    scope: dict[str, Any] = {"graph": graph, "edge": edge}
    for statement in ast.parse("\n".join(lines)).body:
        source = ast.unparse(statement)
        claim = claimed(lines, statement)
        if claim is None:
            exec(source, scope)  # our own documentation
        else:
            assert eval(source, scope) == ast.literal_eval(claim), source
    assert graph.store.head().seq > 4 or graph.metrics().cuts
    assert graph.verify_integrity(deep=True).ok
    assert graph.validate().ok


def test_patterns_make_claims() -> None:
    count = sum(
        claimed(lines, statement) is not None
        for lines in PATTERNS.values()
        for statement in ast.parse("\n".join(lines)).body
    )
    assert count >= 12


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
