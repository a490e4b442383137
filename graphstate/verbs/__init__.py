"""The verbs, one small class for each family."""

from __future__ import annotations
