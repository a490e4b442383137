"""Every argument of every verb that is a number, or holds some, receives those that nobody should pass.

The arguments are found in the signatures, so that a new verb is tried too.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphstate._canonical import encode
from graphstate.adaptogen import Adaptogen
from graphstate.errors import Misuse, VerbFailed
from graphstate.manifest import VERBS
from graphstate.model import to_json
from graphstate.results import Fail, Ok
from graphstate.store import Subscription
from graphstate.tunables import TUNABLES
from tests.graphstate.conftest import Make
from tests.hostile_numbers import NUMBERS, is_never_a_number
from tests.tally import tally


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that becomes the name of a file shall make none here."""
    monkeypatch.chdir(tmp_path)


#: What an ordinary call passes where there is no default; new names fall back to their type.
USUAL: Mapping[str, Any] = {
    "id": "a", "node": "b", "src": "a", "dst": "b", "prereq": "a", "of": "b", "edge_id": "ab", "nodes": ["a"],
    "name": "start", "status": "active", "kind": "node", "key": "ucbC", "value": 1, "fn": print,
}  # fmt: skip
_BY_TYPE: tuple[tuple[str, Any], ...] = (
    ("Sequence[str]", ["a"]), ("Iterable[str]", ["a"]), ("Mapping", {}), ("bool", False), ("int", 1),
    ("float", 1.0), ("str", "a"),
)  # fmt: skip

#: Ways to put a value into what an argument holds.
NESTED: tuple[Callable[[Any], Any], ...] = (lambda v: {"k": v}, lambda v: {"k": [1, {"n": v}]})


class Place(NamedTuple):
    """An argument of a verb and what it takes."""

    verb: str
    parameter: str
    annotation: str

    @property
    def holds_json(self) -> bool:
        return "Json" in self.annotation

    @property
    def is_vector(self) -> bool:
        return "Sequence[float]" in self.annotation


def parameters(verb: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(Adaptogen, verb)).parameters.values())[1:]


def places() -> Iterator[Place]:
    for verb in (name for names in VERBS.values() for name in names):
        for parameter in parameters(verb):
            annotation = str(parameter.annotation)
            numbers = any(kind in annotation for kind in ("int", "float", "Json", "Any"))
            if numbers and "Callable" not in annotation:
                yield Place(verb, parameter.name, annotation)


PLACES = list(places())


def usual(verb: str) -> dict[str, Any]:
    """Return what the verb needs to be called at all."""
    return {
        parameter.name: USUAL.get(parameter.name, _of_type(str(parameter.annotation)))
        for parameter in parameters(verb)
        if parameter.default is inspect.Parameter.empty
    }


def _of_type(annotation: str) -> Any:
    return next((value for kind, value in _BY_TYPE if kind in annotation), "a")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some verbs write the file that they are told."""
    monkeypatch.chdir(tmp_path)


def sown(make: Make) -> Adaptogen:
    graph = make("a", "b")
    graph.link("a", "b", id="ab").unwrap()
    graph.link("b", "a", id="ba").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()
    graph.checkpoint("start").unwrap()
    return graph


def call(graph: Adaptogen, verb: str, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether the verb did it, and what it said. Anything but a typed refusal passes through."""
    bound = inspect.signature(getattr(Adaptogen, verb)).bind(graph, **arguments)
    try:
        answer = getattr(graph, verb)(*bound.args[1:], **bound.kwargs)
    except VerbFailed as error:
        return False, str(error)
    if isinstance(answer, Fail):
        return False, answer.to_json()
    if isinstance(answer, Ok) and isinstance(answer.value, Adaptogen):
        answer.value.close()
        return True, None
    if isinstance(answer, Subscription):
        answer.close()
        return True, None
    if isinstance(answer, Ok) and isinstance(answer.value, Adaptogen):  # a branch
        answer.value.close()
        return True, None
    return True, answer.value if isinstance(answer, Ok) else answer


def written(value: Any) -> list[Any]:
    """Return every number in an answer."""
    stack, found = [to_json(value)], []
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            found.append(item)
    return found


def test_the_signatures_show_where_numbers_go() -> None:
    assert {(place.verb, place.parameter) for place in PLACES} >= {
        ("remember", "embedding"), ("remember", "expect_version"), ("remember", "payload"), ("remember", "patch"),
        ("recall", "embedding"), ("recall", "limit"), ("link", "weight"), ("link", "expect_version"),
        ("step", "reward"), ("step", "vars"), ("reward", "value"), ("reward", "depth"), ("reward", "lambda_"),
        ("set_tunable", "value"), ("history", "from_seq"), ("history", "limit"), ("suggest", "vars"),
    }  # fmt: skip
    assert len(PLACES) >= 20


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.verb}.{place.parameter}")
def test_a_number_is_refused_or_kept_as_what_it_is(place: Place, make: Make) -> None:
    graph = sown(make)
    needed = usual(place.verb)
    for name, number in NUMBERS.items():
        for value in forms(place, number):
            before = graph.head()
            done, said = call(graph, place.verb, needed | {place.parameter: value})
            tally("numbers as arguments")
            if done:
                assert may_be_accepted(place, number), (name, value)
                assert all(type(n) is int or math.isfinite(n) for n in written(said)), (name, said)
                assert "-0.0" not in repr(said), (name, said)
            else:
                assert graph.head() == before, "a refusal changes nothing"
            encode(to_json(said))
    report = graph.verify_integrity(deep=True)
    assert report.ok, report
    graph.render()
    encode(to_json(graph.suggest()))
    assert graph.remember("afterwards").ok


def forms(place: Place, number: Any) -> list[Any]:
    if place.is_vector:
        return [number, [number], [1.0, number]]
    if place.holds_json and place.verb != "set_tunable":
        return [number, *(nest(number) for nest in NESTED)]
    return [number]


def may_be_accepted(place: Place, number: Any) -> bool:
    if isinstance(number, str) and place.annotation.startswith("str |"):
        return True
    if number is None:
        return "None" in place.annotation or place.holds_json
    if place.holds_json:  # texts and truths are JSON too
        return not (isinstance(number, float) and not math.isfinite(number))
    return not is_never_a_number(number)


@pytest.mark.parametrize("verb", [name for names in VERBS.values() for name in names])
def test_the_usual_call_is_no_misuse(verb: str, make: Make) -> None:
    call(sown(make), verb, usual(verb))


@pytest.mark.parametrize("key", TUNABLES)
def test_a_setting_takes_only_its_range(key: str, make: Make) -> None:
    graph = sown(make)
    for name, number in NUMBERS.items():
        done, _ = call(graph, "set_tunable", {"key": key, "value": number})
        tally("numbers as arguments")
        if done:
            assert type(number) in (int, float), name
            kept = graph.get_tunables()[key]
            assert kept == number, name
            assert math.copysign(1, kept) == 1, name
    assert graph.verify_integrity(deep=True).ok


@pytest.mark.parametrize("name", NUMBERS)
def test_a_waiting_time_is_a_whole_number_in_range(name: str) -> None:
    with pytest.raises(ValueError, match="busy_timeout_ms must be an integer from 0"):
        Adaptogen.open(busy_timeout_ms=NUMBERS[name], seed=False)
    tally("numbers as arguments")


@pytest.mark.parametrize("source", ["now", "rand"])
@pytest.mark.parametrize("verb", ["remember", "link", "step", "checkpoint"])
def test_a_clock_or_chance_that_says_nonsense_is_misuse_and_changes_nothing(
    source: str, verb: str, make: Make
) -> None:
    usual_reading: Any = 1_000 if source == "now" else 0.5
    readings = [usual_reading]
    graph = make("a", "b", **{source: lambda: readings[-1]})
    graph.link("a", "b", id="ab").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.set_tunable("explore", "epsilon").unwrap()
    graph.checkpoint("start").unwrap()
    before = graph.head()
    for name, value in NUMBERS.items():
        if source == "rand" and name == "minus zero":
            continue
        readings.append(value)
        with pytest.raises(Misuse, match=rf"{source}\(\) must return"):
            call(graph, verb, usual(verb))
        tally("numbers as arguments")
        assert graph.head() == before
    readings.append(usual_reading)
    assert graph.verify_integrity(deep=True).ok
    assert call(graph, verb, usual(verb))[0]
