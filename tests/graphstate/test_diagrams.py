"""Diagrams hold exactly the graph, whatever is written on its nodes: asked of the real parsers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstate.diagrams import MAX_LABEL, Arrow, Box, dot, mermaid
from graphstate.rendering import visible
from tests.graphstate.conftest import Make
from tests.graphstate.diagram_parsers import Parsed, dot_parsed, drawn_texts, mermaid_parsed
from tests.strategies import labels

FULL = os.environ.get("RELIABILITY") == "full"

_ODD = (
    "", " ", "  x  ", "end", 'a"b', "a\\", "\\N", "&lt;", "&#34;", "#34;", "<b>x</b>", "<<b>x</b>>", "`md`", "1. one",
    "%%{init: {}}%%", "click n1 call f()", ":::x", "a\nb", "\x00", "\x1b[31m", "\u202eabc", "\u200b", "日本語 🦊", "ﬂ°°34¶ß",
    "x" * 200, "x" * 201, "\x00" * 100, '"]\n  n9["', '"];\n"n9" [label="',
)  # fmt: skip


def naughty() -> tuple[str, ...]:
    """The corpus of naughty strings where there is one, and labels of our own."""
    try:
        found: Sequence[str] = import_module("tests.corpora.read").naughty_strings()
    except ModuleNotFoundError:
        return _ODD
    return tuple(dict.fromkeys((*_ODD, *found)))


def boxes(texts: Sequence[str]) -> list[Box]:
    return [Box(f"id{number}", text, "active") for number, text in enumerate(texts)]


def expected(texts: Sequence[str]) -> dict[str, str]:
    """What a diagram of nodes with these labels must show."""
    shown = [visible(text) if text.strip() else f"id{number}" for number, text in enumerate(texts)]
    cut = [text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…" for text in shown]
    return {f"n{number}": text for number, text in enumerate(cut, 1)}


def chain(texts: Sequence[str]) -> list[Arrow]:
    return [Arrow(f"id{n}", f"id{n + 1}", "transition", text) for n, text in enumerate(texts[:-1])]


def batched(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    return [texts[start : start + size] for start in range(0, len(texts) - size + 1, size)]


def check(parsed: Parsed, texts: Sequence[str]) -> None:
    assert parsed.nodes == expected(texts)
    assert [(src, dst) for src, dst, _, _ in parsed.edges] == [
        (f"n{n}", f"n{n + 1}") for n in range(1, len(texts))
    ]
    for (_, _, label, _), text in zip(parsed.edges, texts, strict=False):
        assert label == (expected([text])["n1"] if text.strip() else "")


def test_every_naughty_label_is_just_a_label() -> None:
    texts = naughty()
    trios: list[Sequence[str]] = (
        [("a", text, "b") for text in texts] if FULL else batched((*texts, "a", "b"), 3)
    )
    for trio, parsed in zip(
        trios, mermaid_parsed([mermaid(boxes(trio), chain(trio)) for trio in trios]), strict=True
    ):
        check(parsed, trio)
    for trio in trios:
        check(dot_parsed(dot(boxes(trio), chain(trio))), trio)
    check(dot_parsed(dot(boxes(texts), chain(texts))), texts)


@settings(max_examples=2_000 if FULL else 40, deadline=None)
@given(st.lists(labels(), min_size=3, max_size=3))
def test_any_three_labels_come_back_from_both_parsers(texts: list[str]) -> None:
    (parsed,) = mermaid_parsed([mermaid(boxes(texts), chain(texts))])
    check(parsed, texts)
    check(dot_parsed(dot(boxes(texts), chain(texts))), texts)


@settings(max_examples=500 if FULL else 40, deadline=None)
@given(st.lists(labels(), min_size=3, max_size=3))
def test_graphviz_draws_the_labels_as_they_are(texts: list[str]) -> None:
    drawn = drawn_texts(dot(boxes(texts), []))
    # Graphviz parts a run of spaces by ones that do not break.
    assert [text.replace("\xa0", " ") for text in drawn] == [*expected(texts).values()]


@settings(max_examples=2_000 if FULL else 200, deadline=None)
@given(st.lists(labels(), min_size=3, max_size=3))
def test_mermaid_is_plain_ascii_and_both_have_one_line_for_each_thing(texts: list[str]) -> None:
    flowchart, digraph = mermaid(boxes(texts), chain(texts)), dot(boxes(texts), chain(texts))
    assert flowchart.isascii()
    assert flowchart.count("\n") == 5
    assert digraph.count("\n") == 8
    assert all(line.isprintable() for line in (*flowchart.split("\n"), *digraph.split("\n")))


def test_v141_text_that_is_not_ascii_stays_readable(make: Make) -> None:
    graph = make()
    graph.remember("a", label='Käse "1"').unwrap()
    graph.remember("end").unwrap()
    graph.link("a", "end", label="->").unwrap()
    assert graph.to_mermaid() == (
        'graph LR\n  n1["K#228;se #34;1#34;"]\n  n2["end"]\n  n1 -->|"#45;#62;"| n2'
    )
    assert graph.to_dot() == (
        "digraph adaptogen {\n  rankdir=LR;\n  node [shape=box];\n"
        '  "n1" [label="Käse \\"1\\""];\n  "n2" [label="end"];\n'
        '  "n1" -> "n2" [label="->"];\n}'
    )


def test_kinds_of_edges_are_kinds_of_lines(make: Make) -> None:
    graph = make("a", "b")
    for kind in ("transition", "dependency", "reference"):
        graph.link("a", "b", kind=kind).unwrap()
    (flowchart,) = mermaid_parsed([graph.to_mermaid()])
    assert [line for *_, line in flowchart.edges] == [
        "normal arrow_point",
        "dotted arrow_point",
        "normal arrow_circle",
    ]
    assert [line for *_, line in dot_parsed(graph.to_dot()).edges] == ["solid", "dashed", "dotted"]


def test_inactive_nodes_are_shown_dashed_where_an_active_one_leads_to_them(make: Make) -> None:
    graph = make("a", "old", "older", "alone")
    graph.link("a", "old").unwrap()
    graph.link("old", "older").unwrap()
    for node in ("old", "older", "alone"):
        graph.archive(node).unwrap()
    (flowchart,) = mermaid_parsed([graph.to_mermaid()])
    digraph = dot_parsed(graph.to_dot())
    for parsed in (flowchart, digraph):
        assert parsed.nodes == {"n1": "a", "n2": "old"}
        assert [(src, dst) for src, dst, *_ in parsed.edges] == [("n1", "n2")]
    assert 'n2["old"]:::inactive' in graph.to_mermaid()
    assert '"n2" [label="old" style=dashed]' in graph.to_dot()


@pytest.mark.parametrize("zone", ["pen", 'a "b" <i>', "\u202e"])
def test_zones_are_frames_and_a_node_is_in_the_first_that_names_it(zone: str) -> None:
    nodes = [Box(name, name, "active") for name in "abc"]
    zones = [(zone, ["b", "a", "gone"]), ("second", ["a", "c"]), ("empty", ["a"])]
    (flowchart,) = mermaid_parsed([mermaid(nodes, [Arrow("a", "c", "transition", "")], zones)])
    digraph = dot_parsed(dot(nodes, [Arrow("a", "c", "transition", "")], zones))
    for parsed in (flowchart, digraph):
        assert parsed.nodes == {"n1": "a", "n2": "b", "n3": "c"}
        assert parsed.groups == {visible(zone): {"n1", "n2"}, "second": {"n3"}}
        assert [(src, dst) for src, dst, *_ in parsed.edges] == [("n1", "n3")]


def test_an_empty_graph_is_an_empty_diagram(make: Make) -> None:
    graph = make()
    (flowchart,) = mermaid_parsed([graph.to_mermaid()])
    assert flowchart == dot_parsed(graph.to_dot()) == Parsed({}, [], {})


@pytest.mark.parametrize(("length", "shown"), [(199, 199), (200, 200), (201, 200), (1_024, 200)])
def test_a_label_is_cut_at_200_characters_with_a_mark(length: int, shown: int) -> None:
    digraph = dot_parsed(dot([Box("a", "x" * length, "active")], []))
    label = digraph.nodes["n1"]
    assert len(label) == shown
    assert label.endswith("…") == (length > MAX_LABEL)
