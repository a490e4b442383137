"""Fitting sections into a window: pure arithmetic over what texts cost.

Passes: keep the reserve and the margin back; place what is pinned; share the rest by priority
under caps, hand out what the caps left over, take back what stays below a floor; fill each
section into its share; give what the filling left over to whoever can still use it. The same
input gives the same window, in whatever order the sections come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

from agentloop._numbers import check_count, check_share
from agentloop.context.filling import Share
from agentloop.context.reports import ContextReport
from agentloop.context.sections import Section
from agentloop.context.tokens import CountedTexts, Tokenizer
from agentloop.errors import AgentLoopConfigError, ErrorValue
from agentloop.messages import Message
from agentloop.outcome import Err, Ok, Result, fatal

__all__ = ("DEFAULT_SAFETY_MARGIN", "ContextBudget", "Packed", "pack")

#: Kept back while the tokenizer is not the model's own.
DEFAULT_SAFETY_MARGIN: Final = 0.08

_BY_PRIORITY: Final = attrgetter("priority", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget:
    """How much a window may hold, in tokens.

    Raises:
        TypeError, ValueError: A size or share that cannot be.
    """

    #: What the model takes in and puts out together.
    total: int
    #: Never given away: room for the answer.
    reserve_for_output: int = 0
    #: 0..1; `DEFAULT_SAFETY_MARGIN` if None. An exact tokenizer needs none.
    safety_margin: float | None = None
    #: 0..1: the part of the usable room that is used, below 1 after a window was too long.
    shrink: float = 1.0

    def __post_init__(self) -> None:
        check_count("total", self.total, 0)
        check_count("reserve_for_output", self.reserve_for_output, 0)
        check_share("safety_margin", self.safety_margin, optional=True)
        check_share("shrink", self.shrink)
        if not self.total > 0 or self.reserve_for_output < 0:
            raise AgentLoopConfigError(
                f"a budget needs total > 0 and reserve_for_output >= 0, not total={self.total}, "
                f"reserve_for_output={self.reserve_for_output}"
            )
        if self.safety_margin is not None and not 0 <= self.safety_margin < 1:
            raise AgentLoopConfigError(f"safety_margin must be 0 or more and below 1: {self.safety_margin!r}")
        if not 0 < self.shrink <= 1:
            raise AgentLoopConfigError(f"shrink must be above 0 and at most 1: {self.shrink!r}")

    def margin(self, tokenizer: Tokenizer) -> float:
        """Return the part that is kept back with that tokenizer."""
        if tokenizer.exact:
            return 0.0
        return DEFAULT_SAFETY_MARGIN if self.safety_margin is None else self.safety_margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A window that fits."""

    messages: tuple[Message, ...]
    tokens: int
    report: ContextReport
    #: The ids of the items shown, by section.
    included: dict[str, tuple[str, ...]]


def pack(
    sections: Sequence[Section], budget: ContextBudget, tokenizer: Tokenizer | CountedTexts
) -> Result[Packed]:
    """Return the window, or why there is none.

    Args:
        sections: In any order; each stands where its ``order`` says.
        budget: How much room there is.
        tokenizer: What texts cost. As `CountedTexts` it keeps the costs for the next window.

    Returns:
        Ok, or an Err that is fatal: ``config.invalid``, ``context.duplicate_section``,
        ``context.no_space``, or ``context.pinned_overflow``, which names the pinned sections
        and what each of them costs.

    Cost: O(n log n) in the number of sections, and one look-up for each item whose text was
    counted before. A block that has to leave something out is counted as a whole for each of
    its items, unless the tokenizer is ``additive`` as `PIECEWISE` is.
    """
    counts = tokenizer if isinstance(tokenizer, CountedTexts) else CountedTexts(tokenizer)
    problem = _problem(sections)
    if problem is not None:
        return Err(problem)
    usable = math.floor(
        (budget.total - budget.reserve_for_output) * (1 - budget.margin(counts.tokenizer)) * budget.shrink
    )
    if usable <= 0:
        return Err(_no_space(budget, counts.tokenizer))
    shares = [Share(section, counts) for section in sorted(sections, key=_BY_PRIORITY)]
    pinned = [share for share in shares if share.section.pinned]
    required = sum([share.want for share in pinned])
    if required > usable:
        return Err(_overflow(pinned, required, usable))
    for share in pinned:
        share.allocated = share.want
    _allot([share for share in shares if not share.section.pinned], usable - required)
    for share in shares:
        if not share.floored:
            share.filled = share.fill(share.allocated)
    used = sum([share.filled.used for share in shares])
    if used < usable:
        used += _hand_on(shares, usable - used)
    return Ok(_packed(shares, budget, usable, used, required, counts.tokenizer))


# -------------------------------------------------------------------------------- refusals


def _problem(sections: Sequence[Section]) -> ErrorValue | None:
    if len({section.id for section in sections}) < len(sections):
        seen: set[str] = set()
        for section in sections:
            if section.id in seen:
                return fatal(
                    "context.duplicate_section",
                    f"two sections are called {section.id!r}: ids are unique within a window",
                    detail={"id": section.id},
                )
            seen.add(section.id)
    for section in sections:
        share = section.max_share
        if (share is not None and not 0 <= share <= 1) or section.min_tokens < 0:
            return fatal(
                "config.invalid",
                f"section {section.id!r} needs 0 <= max_share <= 1 and min_tokens >= 0, not "
                f"max_share={share!r}, min_tokens={section.min_tokens!r}",
                detail={"section": section.id},
            )
    return None


def _no_space(budget: ContextBudget, tokenizer: Tokenizer) -> ErrorValue:
    margin = budget.margin(tokenizer)
    return fatal(
        "context.no_space",
        f"nothing is left of {budget.total} tokens after {budget.reserve_for_output} for the answer and a "
        f"margin of {margin:.0%}: raise the total or reserve less",
        detail={"total": budget.total, "reserveForOutput": budget.reserve_for_output, "margin": margin},
    )


def _overflow(pinned: Sequence[Share], required: int, usable: int) -> ErrorValue:
    sizes = [{"id": share.section.id, "tokens": share.want} for share in pinned]
    named = ", ".join(f"{size['id']} {size['tokens']}" for size in sizes)
    return fatal(
        "context.pinned_overflow",
        f"what must be shown needs {required} tokens of {usable} usable ones ({named}): shorten it, or "
        "raise the budget",
        detail={"required": required, "usable": usable, "sections": sizes},
    )


# ---------------------------------------------------------------------------------- passes


def _allot(shares: Sequence[Share], pool: int) -> None:
    """Share the pool by priority: under caps, then without them, then without who got too little."""
    for share in shares:
        cap = share.section.max_share
        share.allocated = min(share.want, pool if cap is None else math.floor(cap * pool))
        pool -= share.allocated
    pool = _top_up(shares, pool)
    for share in shares:
        if share.section.min_tokens and share.allocated < min(share.section.min_tokens, share.want):
            pool += share.allocated
            share.allocated, share.floored = 0, True
    _top_up([share for share in shares if not share.floored], pool)


def _top_up(shares: Sequence[Share], pool: int) -> int:
    for share in shares:
        if pool <= 0:
            break
        if (missing := share.want - share.allocated) > 0:
            more = min(missing, pool)
            share.allocated += more
            pool -= more
    return pool


def _hand_on(shares: Sequence[Share], slack: int) -> int:
    """Give what the filling left over to whoever can show more with it; return what they took."""
    hungry = [share for share in shares if not share.floored and share.filled.next_at < math.inf]
    given, changed = 0, True
    while changed and slack > 0:
        changed = False
        for share in hungry:
            old = share.filled
            if old.next_at > old.used + slack:
                continue
            new = share.fill(old.used + slack)
            if (len(new.kept), new.used) <= (len(old.kept), old.used):
                continue
            share.filled, changed = new, True
            slack -= new.used - old.used
            given += new.used - old.used
            if new.used > share.allocated:
                share.slack_given += new.used - share.allocated
                share.allocated = new.used
    return given


def _packed(
    shares: Sequence[Share],
    budget: ContextBudget,
    usable: int,
    used: int,
    pinned_used: int,
    tokenizer: Tokenizer,
) -> Packed:
    rows = tuple([share.report() for share in shares])
    report = ContextReport(
        tokenizer=tokenizer.name,
        exact=tokenizer.exact,
        total=budget.total,
        reserve_for_output=budget.reserve_for_output,
        safety_margin=budget.margin(tokenizer),
        usable=usable,
        pinned_used=pinned_used,
        used=used,
        remaining=usable - used,
        sections=rows,
        dropped_items=sum([row.items_dropped for row in rows]),
    )
    # They are in order of priority: only one that stands elsewhere makes sorting necessary.
    moved = any(share.section.order is not None for share in shares)
    in_place = sorted(shares, key=_place) if moved else shares
    return Packed(
        messages=tuple(chain.from_iterable([share.filled.messages for share in in_place])),
        tokens=used,
        report=report,
        included={share.section.id: share.ids() for share in shares if share.filled.kept},
    )


def _place(share: Share) -> tuple[float, str]:
    section = share.section
    return (section.priority if section.order is None else section.order), section.id
