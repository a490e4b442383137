"""What can be read of a graph: history, news, pictures, and that none of it steers a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcwidth

from graphstate import Adaptogen, Changes, VerbFailed
from graphstate.cli import output
from graphstate.event_types import EVENT_TYPES
from graphstate.events import Draft
from graphstate.rendering import summary, visible
from tests.graphstate.conftest import Make
from tests.graphstate.diagram_parsers import dot_parsed, mermaid_parsed
from tests.strategies import labels

# ------------------------------------------------------------------------------ history and news


def lived(make: Make) -> Adaptogen:
    graph = make("a", "b")
    graph.link("a", "b", id="e1").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()
    graph.reward(1).unwrap()
    graph.set_cursor(["a"], actor="robot").unwrap()
    return graph


def test_history_can_be_asked_by_actor_and_everything_else_at_once(make: Make) -> None:
    graph = lived(make)
    assert [entry.seq for entry in graph.history(actor="robot")] == [7]
    assert [entry.seq for entry in graph.history(actor="developer", from_seq=3)] == [3, 4, 5, 6]
    assert [entry.seq for entry in graph.history(actor="developer", node="b", type="TransitionTaken")] == [5]
    assert graph.history(actor="robot", node="b") == []
    assert graph.history(actor="nobody") == []
    assert graph.history(actor="robot", limit=0) == []


BAD_NUMBERS = (-1, 1.5, float("nan"), True, "1", 10**30)


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "ask",
    [
        lambda graph, bad: graph.history(limit=bad),
        lambda graph, bad: graph.history(from_seq=bad),
        lambda graph, bad: graph.changes(after=bad),
        lambda graph, bad: graph.changes(cuts=bad),
        lambda graph, bad: graph.changes(limit=bad),
        lambda graph, bad: graph.subscribe(print, after=bad),
    ],
    ids=["history limit", "history from_seq", "changes after", "changes cuts", "changes limit", "subscribe after"],
)  # fmt: skip
def test_d35_numbers_that_are_none_are_refused_with_their_name(
    make: Make, ask: Callable[[Any, Any], object], bad: Any
) -> None:
    graph = lived(make)
    with pytest.raises(
        VerbFailed, match=r"InvalidInput: (limit|from_seq|after|cuts) must be an integer from"
    ):
        ask(graph, bad)


def test_changes_are_the_events_behind_a_place_and_say_how_to_go_on(make: Make) -> None:
    graph = lived(make)
    first = graph.changes(limit=3)
    assert ([entry.seq for entry in first.events], first.seq, first.cuts) == ([1, 2, 3], 3, 0)
    second = graph.changes(after=first.seq, cuts=first.cuts)
    assert [entry.seq for entry in second.events] == [4, 5, 6, 7]
    assert graph.changes(after=second.seq) == Changes(events=(), seq=7, cuts=0)
    assert graph.changes(after=99) == Changes(events=(), seq=99, cuts=0)
    assert graph.changes(limit=0) == Changes(events=(), seq=0, cuts=0)
    assert (*first.events, *second.events) == tuple(graph.history())


def test_changes_tell_of_a_rollback_once_and_from_where_it_led_back_to(make: Make) -> None:
    graph = make("a")
    graph.checkpoint("cp").unwrap()
    graph.remember("cut").unwrap()
    known = graph.changes()
    graph.rollback("cp").unwrap()
    graph.remember("new").unwrap()
    told = graph.changes(after=known.seq, cuts=known.cuts)
    assert (told.back_to, [entry.summary for entry in told.events]) == (1, ["node new (state)"])
    assert graph.changes(after=told.seq, cuts=told.cuts) == Changes(events=(), seq=2, cuts=told.cuts)
    # Who had not read that far has nothing to take back.
    assert graph.changes(after=1, cuts=0).back_to is None
    assert graph.changes(after=known.seq) == Changes(events=(), seq=known.seq, cuts=told.cuts)


def test_changes_are_read_by_another_process_too(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    writer = make("a", path=path)
    reader = make(path=path, read_only=True)
    known = reader.changes()
    writer.remember("b").unwrap()
    assert [entry.seq for entry in reader.changes(after=known.seq, cuts=known.cuts).events] == [2]


# ------------------------------------------------------------------------------ pictures


def test_v140_render_is_the_moment_in_lines(make: Make) -> None:
    graph = make("a", "b")
    graph.link("a", "b", id="e1").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()
    graph.reward(1).unwrap()
    graph.set_cursor(["a"]).unwrap()
    assert graph.render().split("\n") == [
        "cursor: a",
        "moves (1):",
        "  -> b [off] score=1.12 conf=0.20 visits=1 ema=0.30",
        "ready: a",
        "recent rewards:",
        "  1 @ seq 6",
        "violations: 0",
        "seq: 7",
    ]


def test_zones_are_frames_of_the_diagrams_and_the_smallest_wins(make: Make) -> None:
    graph = make("a", "b", "c")
    graph.define_zone("outer", ["a", "b"]).unwrap()
    graph.define_zone("z.inner", ["b"]).unwrap()
    (flowchart,) = mermaid_parsed([graph.to_mermaid()])
    for parsed in (flowchart, dot_parsed(graph.to_dot())):
        assert parsed.nodes == {"n1": "a", "n2": "b", "n3": "c"}
        assert parsed.groups == {"outer": {"n1"}, "z.inner": {"n2"}}


# ------------------------------------------------------------------------------ terminals


def steering() -> Iterator[str]:
    """Controls, bidirectional and invisible characters, tags, and what ends a line."""
    for low, high in (
        (0x00, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F),
        (0xFEFF, 0xFEFF), (0xE0000, 0xE007F),
    ):  # fmt: skip
        yield from map(chr, range(low, high + 1))


@pytest.mark.parametrize("shown", [visible, lambda text: output.json_text(text, one_line=True)])
def test_nothing_that_steers_a_terminal_is_left_in_a_line(shown: Callable[[str], str]) -> None:
    for character in steering():
        text = shown(f"a{character}b")
        assert character not in text, hex(ord(character))
        assert "a" in text
        assert "b" in text


def cells(text: str) -> str:
    """The text without the marks that the emulator cannot place."""
    return "".join(c for c in text if not c.isprintable() or wcwidth(c) > 0 or unicodedata.combining(c))


def terminal(text: str, columns: int = 1_000) -> pyte.Screen:
    """A terminal after the text was written to it, with a line end behind each line."""
    screen = pyte.Screen(columns, text.count("\n") + 3)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n") + "\r\n")
    return screen


def check(text: str) -> None:
    """The terminal shows the lines as they are, its title is its own, its cursor behind the last line."""
    lines = text.split("\n")
    screen = terminal(text)
    assert (screen.title, screen.icon_name) == ("", "")
    assert (screen.cursor.x, screen.cursor.y) == (0, len(lines))
    for line, shown in zip(lines, screen.display, strict=False):
        assert unicodedata.normalize("NFC", shown).rstrip() == unicodedata.normalize("NFC", line).rstrip()
    assert not any(line.strip() for line in screen.display[len(lines) :])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(EVENT_TYPES)), labels())
def test_a_summary_is_one_line_of_a_terminal_and_leaves_it_alone(name: str, text: str) -> None:
    text = cells(text)
    check(summary(name, {key.removesuffix("?"): text for key in EVENT_TYPES[name].payload}))
    check(summary(text, {}))


def test_a_graph_full_of_escapes_is_shown_line_by_line(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = make("a", "b")
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\u202edrow\r\n\x9b31m\u2028"
    graph.remember("a", label=evil, payload={"text": evil}).unwrap()
    graph.link("a", "b", label=evil, guard=f"vars.x == '{'x' * 9}'", enforcement="hard").unwrap()
    graph.set_cursor(["a"]).unwrap()
    graph.transition("b").unwrap()
    graph.lock_policy("cursor", "robot", reason=evil).unwrap()
    graph.store.begin()
    graph.store.record(
        [Draft(name, dict.fromkeys(("id", "reason", "kind"), evil)) for name in ("SoftViolation!", evil)],
        actor=evil, trust=None,
    )  # fmt: skip
    graph.store.commit()
    entries = graph.history()
    check("\n".join(f"{entry.seq} {visible(entry.type)} {entry.summary}" for entry in entries))
    check(graph.render())
    for text in (graph.to_mermaid(), graph.to_dot()):
        check(text)
