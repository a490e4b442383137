"""A graph as a diagram, in the languages of Mermaid and of Graphviz. Pure.

Names inside a diagram are made here (n1, n2, z1), and nothing that is stored can be more than a
quoted text: no directive, link or style comes from data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from graphstate.rendering import visible

__all__ = ("MAX_LABEL", "Arrow", "Box", "Zones", "dot", "mermaid")

#: Characters of a label that are shown; a longer one ends in a mark.
MAX_LABEL = 200

#: Names with their members. A node is drawn in the first zone that names it.
Zones: TypeAlias = Iterable[tuple[str, Sequence[str]]]


class Box(NamedTuple):
    """What is drawn of a node."""

    id: str
    label: str
    status: str


class Arrow(NamedTuple):
    """What is drawn of an edge."""

    src: str
    dst: str
    kind: str
    label: str


class _Drawing(NamedTuple):
    """What a diagram shows, with the names it uses."""

    #: by id, in the order in which the nodes were made
    names: Mapping[str, str]
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    #: name, label and members of each zone that has any
    zones: Sequence[tuple[str, str, Sequence[Box]]]
    outside: Sequence[Box]


def _drawing(nodes: Iterable[Box], edges: Iterable[Arrow], zones: Zones) -> _Drawing:
    """Choose what is shown: active nodes, their edges, and what those edges lead to."""
    known = {box.id: box for box in nodes}
    active = {box.id for box in known.values() if box.status == "active"}
    arrows = [
        arrow
        for arrow in edges
        if (arrow.src in active or arrow.dst in active) and arrow.src in known and arrow.dst in known
    ]
    shown = active.union(*((arrow.src, arrow.dst) for arrow in arrows))
    boxes = [box for box in known.values() if box.id in shown]
    left = {box.id: box for box in boxes}
    placed: list[tuple[str, str, Sequence[Box]]] = []
    for number, (name, members) in enumerate(zones, 1):
        inside = [left.pop(member) for member in members if member in left]
        if inside:
            placed.append((f"z{number}", _shortened(name), inside))
    names = {box.id: f"n{number}" for number, box in enumerate(boxes, 1)}
    return _Drawing(names, boxes, arrows, placed, list(left.values()))


def _shortened(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= MAX_LABEL else f"{shown[: MAX_LABEL - 1]}…"


def _label(box: Box) -> str:
    return _shortened(box.label if box.label.strip() else box.id)


# ------------------------------------------------------------------------------ Mermaid

# Spaces at either end are entities too: Mermaid would drop them.
_OUTSIDE_MERMAID = re.compile(r"[^A-Za-z0-9 ]|\A | \Z")
_MERMAID_ARROWS = {"dependency": "-.->", "reference": "--o"}


def _entities(text: str) -> str:
    return _OUTSIDE_MERMAID.sub(lambda match: f"#{ord(match[0])};", text)


def mermaid(nodes: Iterable[Box], edges: Iterable[Arrow], zones: Zones = ()) -> str:
    """Return a Mermaid flowchart, pure ASCII: solid moves, dashed dependencies, references with a ring.

    Nodes that are not active are shown, with a dashed border, where an edge joins them to one
    that is. Cost: linear in nodes and edges.
    """
    drawing = _drawing(nodes, edges, zones)
    lines = ["graph LR"]
    for name, label, members in drawing.zones:
        lines += [f'  subgraph {name}["{_entities(label)}"]']
        lines += [f"  {line}" for line in _mermaid_boxes(drawing.names, members)]
        lines += ["  end"]
    lines += _mermaid_boxes(drawing.names, drawing.outside)
    for arrow in drawing.arrows:
        text = f'|"{_entities(_shortened(arrow.label))}"|' if arrow.label.strip() else ""
        line = _MERMAID_ARROWS.get(arrow.kind, "-->")
        lines.append(f"  {drawing.names[arrow.src]} {line}{text} {drawing.names[arrow.dst]}")
    if any(box.status != "active" for box in drawing.boxes):
        lines.append("  classDef inactive stroke-dasharray: 4")
    return "\n".join(lines)


def _mermaid_boxes(names: Mapping[str, str], boxes: Iterable[Box]) -> Iterator[str]:
    for box in boxes:
        mark = "" if box.status == "active" else ":::inactive"
        yield f'  {names[box.id]}["{_entities(_label(box))}"]{mark}'


# ------------------------------------------------------------------------------ Graphviz

_DOT_STYLES = {"dependency": "dashed", "reference": "dotted"}


def _quoted(text: str) -> str:
    # Graphviz reads & in a label as the beginning of an entity.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return f'"{escaped}"'


def dot(nodes: Iterable[Box], edges: Iterable[Arrow], zones: Zones = ()) -> str:
    """Return a digraph for Graphviz, in UTF-8: solid moves, dashed dependencies, dotted references.

    It shows what `mermaid` shows.
    """
    drawing = _drawing(nodes, edges, zones)
    lines = ["digraph adaptogen {", "  rankdir=LR;", "  node [shape=box];"]
    for name, label, members in drawing.zones:
        lines += [f'  subgraph "cluster_{name}" {{', f"    label={_quoted(label)};"]
        lines += [f"  {line}" for line in _dot_boxes(drawing.names, members)]
        lines += ["  }"]
    lines += _dot_boxes(drawing.names, drawing.outside)
    lines += [f"  {_dot_arrow(drawing.names.__getitem__, arrow)};" for arrow in drawing.arrows]
    return "\n".join((*lines, "}"))


def _dot_boxes(names: Mapping[str, str], boxes: Iterable[Box]) -> Iterator[str]:
    for box in boxes:
        style = "" if box.status == "active" else " style=dashed"
        yield f'  "{names[box.id]}" [label={_quoted(_label(box))}{style}];'


def _dot_arrow(name: Callable[[str], str], arrow: Arrow) -> str:
    options = [f"label={_quoted(_shortened(arrow.label))}"] if arrow.label.strip() else []
    options += [f"style={_DOT_STYLES[arrow.kind]}"] if arrow.kind in _DOT_STYLES else []
    shown = f" [{' '.join(options)}]" if options else ""
    return f'"{name(arrow.src)}" -> "{name(arrow.dst)}"{shown}'
