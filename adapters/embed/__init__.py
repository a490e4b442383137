"""Vectors of sentences from a small model that is installed with the extra ``embed``."""

from __future__ import annotations

from adapters.embed.sentence import SentenceEmbedder, sentence_embedder

__all__ = ("SentenceEmbedder", "sentence_embedder")
