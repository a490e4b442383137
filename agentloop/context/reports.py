"""What a window says about itself: what was asked for, given, used and left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from agentloop._canonical import Json

__all__ = ("ContextReport", "SectionReport")


class SectionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """How one section fared. All sizes are tokens."""

    id: str
    priority: float
    pinned: bool
    fill: Literal["first", "last"]
    #: What all of it would cost.
    requested: int
    #: What it was given, slack included.
    allocated: int
    used: int
    #: What it was given beyond its share because others left it over.
    slack_given: int
    items_total: int
    #: Cut ones included.
    items_included: int
    items_dropped: int
    items_truncated: int
    #: It has items that cost something, and none is shown.
    starved: bool
    #: Whether the window says how many items were left out.
    note_shown: bool


class ContextReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a window was filled. All sizes are tokens."""

    tokenizer: str
    exact: bool
    total: int
    reserve_for_output: int
    #: 0..1: kept back because the tokenizer is not exact.
    safety_margin: float
    #: What there was to give away.
    usable: int
    pinned_used: int
    used: int
    remaining: int
    #: In the order in which they were served.
    sections: tuple[SectionReport, ...]
    dropped_items: int
    #: What else whoever made the window has to say: versions, scores, attempts.
    notes: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Json]:
        """Return the report as JSON, with the names a ledger has."""
        return cast("dict[str, Json]", msgspec.to_builtins(self))
