"""Streams of what an agent is told, with questions whose answers are known.

A stream is made from a seed: a few services, people and projects; facts about them, some replaced
later and some wrong; chatter that mentions them; and questions. Statements and questions say the
same in other words, so that a name is nearly always shared and the rest now and then. Time is the
stream's own, in milliseconds from its beginning.

Kinds of questions:

- ``single``: a fact that was said once and still holds.
- ``updated``: a fact that was replaced, and the memory was told what replaces what.
- ``unmarked``: a fact that was replaced, and nobody said so: only the newer statement is there.
- ``hops``: asks through something that is named by another statement alone.
- ``as_of``: what held at a time in the past.
- ``retracted``: of two statements one, the newer, was called wrong within the last two days.
- ``absent``: nothing that was said answers it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

__all__ = (
    "DAY", "KINDS", "Connect", "Kind", "Operation", "Question", "Remember", "Retract", "Stream", "Supersede", "make_stream",
)  # fmt: skip

DAY: Final = 86_400_000

Kind: TypeAlias = Literal["single", "updated", "unmarked", "hops", "as_of", "retracted", "absent"]
KINDS: Final[tuple[Kind, ...]] = ("single", "updated", "unmarked", "hops", "as_of", "retracted", "absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Something is said. ``about`` are the ids of the things it names."""

    at: int
    id: str
    text: str
    #: ``entity`` for a thing itself, which is there to be linked to and is no answer
    memory_class: Literal["semantic", "episodic", "entity"] = "semantic"
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """One statement is linked to another: what it says is found out more of there."""

    at: int
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Supersede:
    """What was said in ``new`` replaces ``old`` from now on."""

    at: int
    new: str
    old: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retract:
    """What was said is called wrong."""

    at: int
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something is asked."""

    at: int
    kind: Kind
    text: str
    #: what answers it; None for ``absent``
    answer: str | None
    #: the answer and what leads to it
    relevant: frozenset[str] = frozenset()
    #: statements about the same thing that are wrong now, or were at ``as_of``
    stale: frozenset[str] = frozenset()
    as_of: int | None = None


Operation: TypeAlias = Remember | Connect | Supersede | Retract | Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What happens, in order of time."""

    seed: int
    operations: Sequence[Operation]

    @property
    def texts(self) -> Mapping[str, str]:
        """What can be shown, by id."""
        return {
            op.id: op.text
            for op in self.operations
            if isinstance(op, Remember) and op.memory_class != "entity"
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attribute:
    statements: Sequence[str]
    questions: Sequence[str]
    past: str


_ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    "database": _Attribute(
        statements=("{e} stores records in the database {v}", "the database behind {e} is {v}", "{e} keeps all data in {v}"),
        questions=("which database does {e} use", "what does {e} store its records in"),
        past="which database did {e} use back then",
    ),
    "owner": _Attribute(
        statements=("{e} is maintained by {v}", "the owner of {e} is {v}", "{v} is responsible for {e} as its owner"),
        questions=("who is the owner of {e}", "who is responsible for {e}"),
        past="who was the owner of {e} back then",
    ),
    "region": _Attribute(
        statements=("{e} runs in the region {v}", "{e} is deployed to the region {v}", "the servers of {e} stand in {v}"),
        questions=("in which region is {e} deployed", "where do the servers of {e} run"),
        past="in which region was {e} back then",
    ),
    "language": _Attribute(
        statements=("{e} is written in the language {v}", "the code of {e} is {v}", "{e} was implemented with {v}"),
        questions=("in what language is {e} written", "what language is the code of {e} in"),
        past="what language was the code of {e} in back then",
    ),
    "port": _Attribute(
        statements=("{e} listens on port {v}", "{e} accepts requests at {v}", "requests reach {e} through port {v}"),
        questions=("on which port does {e} listen", "where does {e} accept requests"),
        past="on which port did {e} listen back then",
    ),
    "deadline": _Attribute(
        statements=("{e} has to be finished on day {v}", "the deadline of {e} is day {v}", "{e} ships on day {v}"),
        questions=("when is the deadline of {e}", "on what day must {e} be finished"),
        past="on what day was the deadline of {e} back then",
    ),
}  # fmt: skip

_CHATTER: Final = (
    "{p} asked about {e} in the standup",
    "{e} had a short outage and came back by itself",
    "{p} reviewed a change to {e}",
    "the dashboard of {e} was slow today",
    "{p} and {q} talked about {e} over lunch",
    "someone restarted {e} twice",
    "{p} said the records of {e} look fine",
    "the team wants a new name for {e}",
)

_DEPENDS: Final = ("{x} is built on top of {e}", "{x} needs {e} to work", "{x} calls {e} for everything")
_HOPS: Final[Mapping[str, str]] = {
    "owner": "who is the owner of what {x} depends on",
    "database": "which database does what {x} depends on use",
    "region": "in which region is what {x} depends on deployed",
}

_SERVICES, _PEOPLE, _PROJECTS = 12, 10, 8
_DAYS: Final = 60
#: Questions of each kind.
_ASKED: Final = 12


def _name(rng: random.Random, taken: set[str]) -> str:
    while True:
        name = "".join([rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(3)])
        if name not in taken:
            taken.add(name)
            return name


class _Maker:
    """Collects what happens; each fact has a key and its versions in order."""

    def __init__(self, seed: int, days: int) -> None:
        self.rng = random.Random(f"stream/{seed}")
        self.end = days * DAY
        self.taken: set[str] = set()
        self.operations: list[Operation] = []
        self.count = 0
        self.said: dict[tuple[str, str], set[str]] = {}
        self.entities: dict[str, str] = {}

    def entity(self, kind: str) -> str:
        name = _name(self.rng, self.taken)
        self.entities[name] = f"e:{name}"
        self.operations.append(
            Remember(at=0, id=f"e:{name}", text=f"{name}, a {kind}", memory_class="entity")
        )
        return name

    def time(self, first: float, last: float) -> int:
        """Return a time in a part of the stream, given in shares of it."""
        return int(self.rng.uniform(first, last) * self.end)

    def say(self, text: str, at: int, *names: str, episodic: bool = False) -> str:
        self.count += 1
        made = f"m{self.count:04d}"
        about = tuple(self.entities[name] for name in names if name in self.entities)
        kind: Literal["semantic", "episodic"] = "episodic" if episodic else "semantic"
        self.operations.append(Remember(at=at, id=made, text=text, memory_class=kind, about=about))
        return made

    def value(self, entity: str, attribute: str, people: Sequence[str]) -> str:
        """Return a value that was not said before."""
        if attribute == "owner":
            said = self.said.setdefault((entity, attribute), set())
            value = self.rng.choice([person for person in people if person not in said])
            said.add(value)
            return value
        if attribute in ("port", "deadline"):
            return str(self.rng.randint(100, 9_999))
        return _name(self.rng, self.taken)

    def state(self, entity: str, attribute: str, at: int, people: Sequence[str]) -> str:
        value = self.value(entity, attribute, people)
        text = self.rng.choice(_ATTRIBUTES[attribute].statements).format(e=entity, v=value)
        return self.say(text, at, entity, *([value] if attribute == "owner" else []))

    def depend(self, project: str, service: str) -> str:
        text = self.rng.choice(_DEPENDS).format(x=project, e=service)
        return self.say(text, self.time(0, 0.4), project, service)

    def connect(self, source: str, target: str) -> None:
        """Link two statements, as soon as both are there."""
        said = {one.id: one.at for one in self.operations if isinstance(one, Remember)}
        at = max(said[source], said[target])
        self.operations.append(Connect(at=at, source=source, target=target))

    def ask(self, entity: str, attribute: str, *, past: bool = False) -> str:
        row = _ATTRIBUTES[attribute]
        return (row.past if past else self.rng.choice(row.questions)).format(e=entity)


def make_stream(seed: int, *, chatter: int = 250, asked: int = _ASKED) -> Stream:
    """Return a stream of 60 days; the same for the same arguments.

    Args:
        seed: Whatever is drawn is drawn by it.
        chatter: Statements that answer nothing.
        asked: Questions of each kind.
    """
    make = _Maker(seed, _DAYS)
    rng = make.rng
    services = [make.entity("service") for _ in range(_SERVICES)]
    people = [make.entity("person") for _ in range(_PEOPLE)]
    projects = [make.entity("project") for _ in range(_PROJECTS)]
    keys = [(service, attribute) for service in services for attribute in _ATTRIBUTES]
    rng.shuffle(keys)
    told, unmarked, wrong, absent, single = keys[:16], keys[16:26], keys[26:38], keys[38:46], keys[46:]
    # Only what is said once can be asked for through something else.
    known = sorted({service for service, attribute in single if attribute in _HOPS})
    under = {project: rng.choice(known) for project in projects}
    reached = {(under[project], attribute): project for project in projects for attribute in _HOPS}

    for _ in range(chatter):
        p, q = rng.sample(people, 2)
        e = rng.choice(services + projects)
        make.say(rng.choice(_CHATTER).format(p=p, q=q, e=e), make.time(0, 1), p, e, episodic=True)
    depends = {project: make.depend(project, service) for project, service in under.items()}
    once = {key: make.state(*key, make.time(0, 0.5), people) for key in single}
    for project, service in under.items():
        for (entity, _), fact in once.items():
            if entity == service:
                make.connect(depends[project], fact)
    _ask_single(make, once, asked)
    _ask_hops(make, once, reached, depends, asked)
    _ask_versions(make, told, people, asked)
    _ask_unmarked(make, unmarked, people, asked)
    _ask_retracted(make, wrong, people, asked)
    _ask_absent(make, absent, asked)
    # What happens at the same moment happens in the order in which it was made.
    return Stream(seed=seed, operations=sorted(make.operations, key=lambda op: op.at))


_Key: TypeAlias = tuple[str, str]


def _ask_single(make: _Maker, once: Mapping[_Key, str], asked: int) -> None:
    for _ in range(asked):
        key, answer = make.rng.choice(list(once.items()))
        make.operations.append(
            Question(
                at=make.time(0.5, 1), kind="single", text=make.ask(*key), answer=answer, relevant=frozenset([answer])
            )
        )  # fmt: skip


def _ask_hops(
    make: _Maker,
    once: Mapping[_Key, str],
    reached: Mapping[_Key, str],
    depends: Mapping[str, str],
    asked: int,
) -> None:
    ways = [(key, project) for key, project in reached.items() if key in once]
    for _ in range(asked):
        key, project = make.rng.choice(ways)
        answer = once[key]
        make.operations.append(
            Question(
                at=make.time(0.5, 1), kind="hops", text=_HOPS[key[1]].format(x=project), answer=answer,
                relevant=frozenset([answer, depends[project]]),
            )
        )  # fmt: skip


def _ask_versions(make: _Maker, keys: Sequence[_Key], people: Sequence[str], asked: int) -> None:
    versions: dict[_Key, list[tuple[int, str]]] = {}
    for key in keys:
        times = sorted(make.time(0.02, 0.7) for _ in range(make.rng.randint(2, 4)))
        said = [(at, make.state(*key, at, people)) for at in times]
        for (_, old), (at, new) in pairwise(said):
            make.operations.append(Supersede(at=at, new=new, old=old))
        versions[key] = said
    for _ in range(asked):
        key, said = make.rng.choice(list(versions.items()))
        at = make.time(0.7, 1)
        answer = said[-1][1]
        make.operations.append(
            Question(
                at=at, kind="updated", text=make.ask(*key), answer=answer, relevant=frozenset([answer]),
                stale=frozenset(old for _, old in said[:-1]),
            )
        )  # fmt: skip
        key, said = make.rng.choice(list(versions.items()))
        place = make.rng.randrange(len(said) - 1)
        answer = said[place][1]
        make.operations.append(
            Question(
                at=make.time(0.7, 1), kind="as_of", text=make.ask(*key, past=True), answer=answer,
                relevant=frozenset([answer]), stale=frozenset(other for _, other in said) - {answer},
                as_of=(said[place][0] + said[place + 1][0]) // 2,
            )
        )  # fmt: skip


def _ask_unmarked(make: _Maker, keys: Sequence[_Key], people: Sequence[str], asked: int) -> None:
    said = {}
    for key in keys:
        times = sorted(make.time(0.02, 0.7) for _ in range(make.rng.randint(2, 3)))
        said[key] = [make.state(*key, at, people) for at in times]
    for _ in range(asked):
        key, ids = make.rng.choice(list(said.items()))
        make.operations.append(
            Question(
                at=make.time(0.7, 1), kind="unmarked", text=make.ask(*key), answer=ids[-1],
                relevant=frozenset(ids[-1:]), stale=frozenset(ids[:-1]),
            )
        )  # fmt: skip


def _ask_retracted(make: _Maker, keys: Sequence[_Key], people: Sequence[str], asked: int) -> None:
    for key in keys[:asked]:
        right = make.state(*key, make.time(0.05, 0.4), people)
        at = make.time(0.5, 0.95)
        mistake = make.state(*key, at, people)
        called = at + make.rng.randint(1, DAY // 2)
        make.operations.append(Retract(at=called, id=mistake))
        make.operations.append(
            Question(
                at=called + make.rng.randint(1, 2 * DAY), kind="retracted", text=make.ask(*key), answer=right,
                relevant=frozenset([right]), stale=frozenset([mistake]),
            )
        )  # fmt: skip


def _ask_absent(make: _Maker, keys: Sequence[_Key], asked: int) -> None:
    for number in range(asked):
        entity, attribute = make.rng.choice(keys)
        if number % 2:
            entity = _name(make.rng, make.taken)
        text = make.ask(entity, attribute)
        make.operations.append(Question(at=make.time(0.5, 1), kind="absent", text=text, answer=None))
