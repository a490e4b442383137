"""The words of a text, as retrieval sees them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from agentloop.errors import AgentLoopConfigError, MissingExtra

__all__ = ("STOPWORDS", "WordRule")

#: Words that say nothing about what a text is about.
STOPWORDS: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "but", "by", "for",
     "from", "how", "in", "is", "it", "of", "on", "or", "that",
     "the", "this", "to", "was", "what", "when", "where", "which", "who", "will", "with"}
)  # fmt: skip

_ASCII: Final = re.compile("[a-z0-9_]{2,}")
_CJK: Final = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNICODE: Final = re.compile(f"[{_CJK}]+|(?:(?![{_CJK}])\\w)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRule:
    """How a text is split into words. Called with a text, it gives its words in order.

    By default: lower case, runs of ``a-z0-9_`` of two characters or more, without stopwords.

    Raises:
        MissingExtra: A stemmer is asked for and the extra ``stem`` is not installed.
        AgentLoopConfigError: No stemmer for that language.
    """

    stopwords: Collection[str] = STOPWORDS
    #: Letters of every script, after NFKC and case folding; Chinese and Japanese, which do not
    #: part their words, as pairs of characters.
    unicode: bool = False
    #: A language, as ``english``: words are cut down to their stems, so that ``kettles`` finds
    #: ``kettle``. Needs the extra ``stem``.
    stemmer: str | None = None

    def __post_init__(self) -> None:
        if self.stemmer is not None:
            _stem_of(self.stemmer)

    def __call__(self, text: str) -> list[str]:
        words = _unicode_words(text) if self.unicode else _ASCII.findall(text.lower())
        kept = [word for word in words if word not in self.stopwords]
        return kept if self.stemmer is None else list(map(_stem_of(self.stemmer), kept))


def _unicode_words(text: str) -> list[str]:
    words: list[str] = []
    for word in _UNICODE.findall(unicodedata.normalize("NFKC", text).casefold()):
        if not _is_cjk(word[0]):
            if len(word) > 1:
                words.append(word)
        elif len(word) == 1:
            words.append(word)
        else:
            words += [word[start : start + 2] for start in range(len(word) - 1)]
    return words


def _is_cjk(character: str) -> bool:
    return character >= "\u3005" and re.match(f"[{_CJK}]", character) is not None


@lru_cache(maxsize=8)
def _stem_of(language: str) -> Callable[[str], str]:
    """Return a stemmer; it is pure Python and slow, so the words it has seen are kept."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise MissingExtra("snowballstemmer", "stem", "stemming") from error
    try:
        stemmer: Any = snowballstemmer.stemmer(language)
    except KeyError:
        known = ", ".join(sorted(snowballstemmer.algorithms()))
        raise AgentLoopConfigError(f"no stemmer for {language!r}: there are {known}") from None
    return lru_cache(maxsize=100_000)(stemmer.stemWord)
