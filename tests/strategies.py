"""What the properties are tried on."""

from __future__ import annotations

from hypothesis import strategies as st

from agentloop._canonical import Json

__all__ = ("json_values",)


def json_values(max_leaves: int = 20) -> st.SearchStrategy[Json]:
    """Any JSON value this library writes: finite numbers, no lone surrogates."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"]))
    )
    keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=max_leaves,
    )
