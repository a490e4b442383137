"""Reading what stands in the file: JSON that is none any more is damage, not a bug."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphstate._canonical import Json, decode
from graphstate.errors import IntegrityBroken

__all__ = ("as_stored", "stored_json")


def stored_json(text: str | bytes) -> Json:
    """Return the JSON value of a stored text.

    Raises:
        IntegrityBroken: It is none.
    """
    try:
        return decode(text)
    except ValueError as error:
        raise IntegrityBroken(f"the file holds JSON that is none: {error}") from None


@contextmanager
def as_stored(what: str) -> Iterator[None]:
    """Turn what fails on a stored value that has not its form into damage."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityBroken(f"{what} cannot be read: {type(error).__name__}: {error}") from None
