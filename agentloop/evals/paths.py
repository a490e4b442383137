"""How two ways differ, in one line that stands in any report."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ("word_diff",)


def word_diff(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the words of both, with what went as ``[-gone-]`` and what came as ``{+new+}``."""
    from difflib import SequenceMatcher  # only where there is a difference

    told: list[str] = []
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        gone, new = " ".join(before[i:j]), " ".join(after[k:m])
        if kind == "equal":
            told.append(new)
            continue
        told += [f"[-{gone}-]"] if gone else []
        told += [f"{{+{new}+}}"] if new else []
    return " ".join(told)
