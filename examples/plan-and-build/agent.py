"""An agent written by hand: it builds one piece of the site with the tools it is given.

It looks before it works, and says so when something it needs is not there. What the pieces
need of each other is known to nobody but these functions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any

from agentloop import Frame

#: A piece yields tool calls as (name, arguments), is sent the output, and returns what it says.
Piece = Generator[tuple[str, dict[str, Any]], str, str]


class Missing(Exception):
    """Something a piece needs is not there."""


def make(options: Mapping[str, Any], context: Any) -> Any:
    """Return the agent: a turn function that works on the node of its loop."""
    return turn


async def turn(prompt: Sequence[Frame], ctx: Any) -> AsyncGenerator[Frame, Frame]:
    """Work on one piece: yield its tool calls, then what there is to say."""
    piece = PIECES[ctx.node["id"]]()
    try:
        name, arguments = next(piece)
        while True:
            result = yield Frame("TOOL_CALL", {"name": name, "arguments": arguments})
            if result.content["ok"]:
                name, arguments = piece.send(result.content["output"])
            else:
                name, arguments = piece.throw(Missing(result.content["output"]))
    except StopIteration as done:
        said = done.value
    except Missing as missing:
        said = f"Not yet: {missing}"
    yield Frame("TEXT", {"text": said})


def read(path: str) -> Generator[tuple[str, dict[str, Any]], str, str]:
    return (yield "fs__read", {"path": path})


def write(path: str, content: str) -> Generator[tuple[str, dict[str, Any]], str, str]:
    return (yield "fs__write", {"path": path, "content": content})


def style() -> Piece:
    yield from write("site/style.css", "body { font: 1.1rem/1.5 serif; max-width: 30rem; margin: auto }\n")
    return "The style is there."


def layout() -> Piece:
    yield from write(
        "layout.html",
        '<!doctype html>\n<title>{title}</title>\n<link rel="stylesheet" href="style.css">\n{text}\n',
    )
    return "The layout is there."


def pages() -> Piece:
    frame = yield from read("layout.html")
    texts = yield "fs__list", {"path": "content"}
    for name in texts.splitlines():
        title, text = _parts((yield from read(f"content/{name}")))
        page = frame.replace("{title}", title).replace("{text}", f"<h1>{title}</h1>\n<p>{text}</p>")
        yield from write(f"site/{name.removesuffix('.md')}.html", page)
    return "Every text has its page."


def index() -> Piece:
    frame = yield from read("layout.html")
    names = (yield "fs__list", {"path": "site"}).splitlines()
    pages = [name for name in names if name.endswith(".html") and name != "index.html"]
    if not pages:
        raise Missing("site/ has no page to lead to")
    items = "\n".join(f'<li><a href="{name}">{name.removesuffix(".html")}</a></li>' for name in pages)
    page = frame.replace("{title}", "Field guide").replace("{text}", f"<ul>\n{items}\n</ul>")
    yield from write("site/index.html", page)
    return f"The index leads to {len(pages)} pages."


def archive() -> Piece:
    yield from read("site/index.html")
    yield from read("site/style.css")
    yield "shell", {"argv": ["python3", "-m", "zipfile", "-c", "site.zip", "site/"]}
    return "The site is packed."


def _parts(text: str) -> tuple[str, str]:
    head, _, body = text.partition("\n")
    return head.removeprefix("#").strip(), body.strip()


PIECES = {"style": style, "layout": layout, "pages": pages, "index": index, "archive": archive}
