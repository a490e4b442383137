"""The real parsers of Mermaid and Graphviz, and what they found in a diagram.

Mermaid's own JavaScript comes inside the package mermaidx and runs in QuickJS; pygraphviz has
Graphviz itself. Both are plain wheels.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pygraphviz
import quickjs

from graphstate._canonical import decode, encode_text

__all__ = ("Parsed", "dot_parsed", "drawn_texts", "mermaid_parsed")


class Parsed(NamedTuple):
    """What a parser says a diagram holds."""

    #: label by name
    nodes: dict[str, str]
    #: source, target, label, kind of line
    edges: list[tuple[str, str, str, str]]
    #: members by label
    groups: dict[str, set[str]]


_PARSE = """
globalThis.parsed = async (texts) => {
  const found = [];
  for (const text of JSON.parse(texts)) {
    try {
      const { db, type } = await mermaid.mermaidAPI.getDiagramFromText(text);
      found.push({
        type,
        nodes: [...db.getVertices().values()].map((v) => [v.id, v.text]),
        edges: db.getEdges().map((e) => [e.start, e.end, e.text, `${e.stroke} ${e.type}`]),
        groups: db.getSubGraphs().map((g) => [g.title, g.nodes]),
      });
    } catch (error) {
      found.push({ error: String(error) });
    }
  }
  globalThis.answer = JSON.stringify(found);
};
"""


@cache
def _mermaid() -> Any:
    context = quickjs.Context()
    context.set_max_stack_size(4 * 1024 * 1024)
    context.add_callable("__log", lambda text: None)
    assets = files("mermaidx") / "assets"
    for name in ("dom_shim.js", "mermaid.js"):
        context.eval((assets / name).read_text("utf-8"))
    context.eval("globalThis.mermaid = __esbuild_esm_mermaid_nm.mermaid.default; mermaid.initialize({});")
    context.eval(_PARSE)
    return context


def _text(text: str) -> str:
    """The text as a browser shows it: the parser keeps entities in a form of its own."""
    return html.unescape(text.replace("ﬂ°°", "&#").replace("ﬂ°", "&").replace("¶ß", ";"))


def mermaid_parsed(diagrams: Sequence[str]) -> list[Parsed]:
    """Parse flowcharts; one that does not parse fails the test."""
    context = _mermaid()
    context.eval(f"parsed({encode_text(encode_text(list(diagrams)))})")
    while context.execute_pending_job():
        pass
    # A long text is kept in parts, which only slice joins.
    answers = decode(context.eval("answer.slice(0)"))
    assert len(answers) == len(diagrams)
    for diagram, answer in zip(diagrams, answers, strict=True):
        assert "error" not in answer, (answer["error"], diagram)
        assert answer["type"] == "flowchart-v2"
    return [
        Parsed(
            {name: _text(text) for name, text in answer["nodes"]},
            [(src, dst, _text(text), line) for src, dst, text, line in answer["edges"]],
            {_text(title): set(members) for title, members in answer["groups"]},
        )
        for answer in answers
    ]


def _unescaped(text: str) -> str:
    """The text as Graphviz draws it: `&` begins an entity, a backslash an escape."""
    return html.unescape(re.sub(r"\\(.)", r"\1", text))


def dot_parsed(diagram: str) -> Parsed:
    """Parse a digraph; one that does not parse fails the test."""
    graph = pygraphviz.AGraph(string=diagram)
    try:
        assert graph.is_directed()
        return Parsed(
            {str(node): _unescaped(node.attr["label"]) for node in graph.nodes()},
            [
                (edge[0], edge[1], _unescaped(edge.attr["label"] or ""), edge.attr["style"] or "solid")
                for edge in graph.edges()
            ],
            {
                _unescaped(group.graph_attr["label"]): {str(node) for node in group.nodes()}
                for group in graph.subgraphs()
            },
        )
    finally:
        graph.close()


def drawn_texts(diagram: str) -> list[str]:
    """Let Graphviz draw the digraph, and return the texts in its picture."""
    graph = pygraphviz.AGraph(string=diagram)
    try:
        picture = graph.draw(format="svg", prog="dot")
    finally:
        graph.close()
    root = ElementTree.fromstring(picture)
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
