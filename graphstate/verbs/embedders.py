"""Finding an embedder by its name: those without a model are here, others are installed.

A package offers one as an entry point of the group `GROUP`: a function without arguments that
returns the embedder, and raises `VerbFailed` if a part of it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphstate.activation.embedding import Embedder, HashingEmbedder
from graphstate.errors import ErrorCode, VerbFailed, shown
from graphstate.store import Store
from graphstate.store.vectors import Space
from graphstate.verbs.arguments import refuse

__all__ = ("GROUP", "STORED", "chosen_embedder", "find_embedder")

GROUP = "graphstate.embedders"

#: Names the embedder that the graph's vectors are of.
STORED = "stored"

_BUILT_IN: Mapping[str, Callable[[int], Embedder]] = {
    "hashing": lambda dimensions: HashingEmbedder(dimensions=dimensions),
    "ngrams": lambda dimensions: HashingEmbedder(dimensions=dimensions, ngrams=True),
}
_DIMENSIONS = 384


def find_embedder(name: str, *, dimensions: int = _DIMENSIONS) -> Embedder:
    """Return the embedder of a name; ``dimensions`` is for those without a model.

    Raises:
        VerbFailed: InvalidInput if there is none, or if it lacks something to be installed.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name](dimensions)
    from importlib.metadata import entry_points  # 20 ms that most processes do not need

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        names = sorted({*_BUILT_IN, *points})
        import difflib

        near = difflib.get_close_matches(name, names, 1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        refuse(f"no embedder is called {shown(name)}: {hint}")
    embedder: Embedder = points[name].load()()
    return embedder


def chosen_embedder(store: Store, told: Embedder | str | None) -> Embedder | None:
    """Return the embedder that was named or given; for `STORED` None if it is not installed.

    Raises:
        VerbFailed: InvalidInput if there is no such embedder, or the object is none.
    """
    if isinstance(told, str):
        return _stored(store) if told == STORED else find_embedder(told)
    if told is not None and not (callable(getattr(told, "embed", None)) and hasattr(told, "descriptor")):
        refuse(f"an embedder has the methods embed and descriptor, which {shown(told)} lacks")
    return told


def _stored(store: Store) -> Embedder | None:
    store.begin_read()
    try:
        space: Space | None = store.projection.vectors.space()
    finally:
        store.end_read()
    if space is None:
        return None
    try:
        return find_embedder(space.provider, dimensions=space.dimensions)
    except VerbFailed as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        return None
