"""What a text costs: the port, a heuristic that needs nothing, and an exact counter.

A tokenizer that is not the model's own says so (``exact`` is false), and the packer keeps a
safety margin back. Counts are remembered by content in `CountedTexts`, so that a text that
stands in every window is counted once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast, runtime_checkable

from agentloop._canonical import Json, encode_text, quote
from agentloop._numbers import check_count
from agentloop.errors import AgentLoopConfigError, MissingExtra
from agentloop.messages import Message, ToolCall

__all__ = (
    "HEURISTIC",
    "PIECEWISE",
    "CountedTexts",
    "MessageTokenizer",
    "Tokenizer",
    "exact_tokenizer",
    "longest_prefix",
    "message_text",
    "tokenizer_from",
)


class Tokenizer(Protocol):
    """Counts what texts cost a model."""

    @property
    def name(self) -> str:
        """For reports."""

    @property
    def exact(self) -> bool:
        """Whether this is the model's own tokenizer; without it a safety margin is kept."""

    def count(self, text: str, /) -> int:
        """Return the tokens of a text; 0 for an empty one."""

    def truncate(self, text: str, max_tokens: int, /) -> str:
        """Return the longest prefix of at most that many tokens; "" for none or fewer."""


@runtime_checkable
class MessageTokenizer(Tokenizer, Protocol):
    """A tokenizer that knows what the server adds to a message: roles, calls, separators."""

    def count_message(self, message: Message, /) -> int:
        """Return the tokens of a whole message."""


def longest_prefix(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest prefix that a monotone count lets through: about log2(len) counts."""
    if max_tokens <= 0:
        return ""
    if count(text) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


@dataclass(frozen=True, slots=True)
class _Counting:
    """A tokenizer made of a function."""

    name: str
    counting: Callable[[str], int]
    exact: bool
    additive: bool = False

    def count(self, text: str, /) -> int:
        return self.counting(text)

    def truncate(self, text: str, max_tokens: int, /) -> str:
        return longest_prefix(text, max_tokens, self.counting)


def tokenizer_from(
    name: str, count: Callable[[str], int], *, exact: bool = True, additive: bool = False
) -> Tokenizer:
    """Return a tokenizer over a counting function.

    Args:
        name: For reports.
        count: Should be monotone: no prefix of a text costs more than the text.
        exact: Whether the counts are the model's own.
        additive: Promise that a text costs at most what its lines and line breaks cost one by
            one; a block that is squeezed is then filled without counting it for every item.
    """
    return _Counting(name, count, exact, additive)


#: Levels of arguments that keep the order of their keys.
_DEPTH: Final = 60

# -------------------------------------------------------------------------------- heuristics

_WORDISH: Final = re.compile("[A-Za-z\u00c0-\u024f]+")
_OTHER: Final = re.compile("[^A-Za-z\u00c0-\u024f \t\n\r]")


def _count_heuristic(text: str) -> int:
    if not text:
        return 0
    runs = sum([(len(run) + 3) // 4 for run in _WORDISH.findall(text)])
    others = _OTHER.findall(text)
    astral = sum([other > "\uffff" for other in others])
    total: int = runs + len(others) + astral
    return total or 1


#: Four letters a token, every other visible character one, white space free. Code costs more
#: than this says; `PIECEWISE` is the one to use.
HEURISTIC: Final[Tokenizer] = _Counting("heuristic", _count_heuristic, exact=False)

# A camel-case hump is a piece of its own, as it is to the tokenizers of models.
_PIECE: Final = re.compile(
    r"([A-Z]?[a-z]+|[A-Z]+)"  # 1: plain letters
    r"|([0-9]+)"  # 2: digits
    r"|( {2,}|\t+| (?=[0-9]))"  # 3: indentation, and a space that no digit takes in
    "|([\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff20])"  # 4: CJK
    "|([^\\W\\d_A-Za-z\u3400-\u4dbf\uf900-\uffff\U00010000-\U0010ffff]+)"  # 5: other scripts
    r"|(\r?\n)"  # 6: line breaks
    r"|([^ ])"  # 7: any other character
)
#: Characters of a token, by the number of the group.
_SIZES: Final = (1, 4, 3, 8, 1, 2, 2)


def _count_piecewise(text: str) -> int:
    if not text:
        return 0
    total = 0
    for piece in _PIECE.finditer(text):
        kind, (start, end) = piece.lastindex or 7, piece.span()
        if kind == 7:
            total += _price_of_character(text[start])
        else:
            size = _SIZES[kind]
            total += (end - start + size - 1) // size
    return total or 1


def _price_of_character(character: str) -> int:
    """Return what a character costs that is in no vocabulary as it stands: up to its bytes."""
    if character < "\u0080":
        return 1
    if character <= "\uffff":
        return 3 if character >= "\uf900" or "\u3400" <= character <= "\u4dbf" else 2
    return 3 if "\U0001f000" <= character <= "\U0001ffff" else 4


#: Prices words, digits, indentation, line breaks, CJK, other scripts and symbols each by a rule of
#: its own. Prose, code, JSON and CJK come out above what the o200k vocabulary makes of them, by
#: about two fifths on average. Long random strings (keys, base64) and old Chinese poems may come
#: out a tenth below. `exact_tokenizer` wastes nothing.
PIECEWISE: Final[Tokenizer] = _Counting("piecewise", _count_piecewise, exact=False, additive=True)


# ------------------------------------------------------------------------------------- exact


@dataclass(frozen=True, slots=True)
class _Exact:
    """The vocabulary of a model, compiled into an extension module."""

    name: str
    encoding: str
    message_tokens: int
    counting: Any
    truncating: Any
    exact: bool = True

    def count(self, text: str, /) -> int:
        counted: int = self.counting((text,), self.encoding, 1)[0]
        return counted

    def count_message(self, message: Message, /) -> int:
        return self.message_tokens + self.count(message_text(message))

    def truncate(self, text: str, max_tokens: int, /) -> str:
        if max_tokens <= 0:
            return ""
        kept: str = self.truncating(text, max_tokens, self.encoding)[0]
        return kept


def exact_tokenizer(*, encoding: str = "o200k_base", message_tokens: int = 4) -> MessageTokenizer:
    """Return a tokenizer that counts as the model does, offline; needs the extra ``tokens``.

    Args:
        encoding: ``o200k_base``, ``cl100k_base``, ``o200k_harmony`` or ``qwen3.5``.
        message_tokens: What the server adds to every message for its role and its limits.

    Raises:
        MissingExtra: The extra is not installed.
        AgentLoopConfigError: No such encoding.
    """
    check_count("message_tokens", message_tokens, 0)
    try:
        import toktok
    except ImportError as error:
        raise MissingExtra("toktok-rs", "tokens", "counting tokens exactly") from error
    try:
        toktok.batch_count(("",), encoding)
    except KeyError as error:
        raise AgentLoopConfigError(f"exact_tokenizer: {error.args[0]}") from None
    return _Exact(f"toktok:{encoding}", encoding, message_tokens, toktok.batch_count, toktok.truncate)


# ---------------------------------------------------------------------------------- messages


def message_text(message: Message) -> str:
    """Return the text that a message is charged for: its content, then its calls, a line each."""
    if not message.tool_calls:
        return message.content
    calls = "\n".join(map(_call_text, message.tool_calls))
    return f"{message.content}\n{calls}" if message.content else calls


def _call_text(call: ToolCall) -> str:
    if call.arguments is None:
        return f"{call.name}({call.raw_arguments or ''})"
    return f"{call.name}({_compact(call.arguments, 0)})"


def _compact(value: Json, depth: int) -> str:
    """Return JSON as a model writes it: no spaces, keys in their order."""
    if depth < _DEPTH:
        if isinstance(value, Mapping):
            return (
                "{"
                + ",".join(f"{quote(key)}:{_compact(item, depth + 1)}" for key, item in value.items())
                + "}"
            )
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(_compact(item, depth + 1) for item in value) + "]"
    return encode_text(value)


class CountedTexts:
    """Costs of texts and messages by one tokenizer, remembered by content.

    Keeps at most about ``max_characters`` of text; what was counted first is forgotten first.

    Attributes:
        counted: How often the tokenizer was really asked.
    """

    __slots__ = ("_counts", "_held", "_max", "_message", "counted", "tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, max_characters: int = 8_000_000) -> None:
        check_count("max_characters", max_characters, 0)
        self.tokenizer, self._max = tokenizer, max_characters
        self._message = tokenizer.count_message if isinstance(tokenizer, MessageTokenizer) else None
        self._counts: dict[str | tuple[str | None, ...], int] = {}
        self._held = self.counted = 0

    def text(self, text: str) -> int:
        """Return what a text costs."""
        found = self._counts.get(text)
        if found is None:
            found = self.tokenizer.count(text)
            self._keep(text, found)
        return found

    def message(self, message: Message) -> int:
        """Return what a message costs, with all that is sent of it."""
        if self._message is None:
            return self.text(message.content if not message.tool_calls else message_text(message))
        key = message.role, message.name, message.call_id, message_text(message)
        found = self._counts.get(key)
        if found is None:
            found = self._message(message)
            self._keep(key, found)
        return found

    def messages(self, messages: Sequence[Message]) -> list[int]:
        """Return what each message costs."""
        if self._message is not None:
            return [self.message(message) for message in messages]
        known = self._counts.get
        costs = [None if message.tool_calls else known(message.content) for message in messages]
        if None in costs:
            return [self.message(message) for message in messages]
        return cast("list[int]", costs)

    def once(self, message: Message) -> int:
        """Return what a message costs that will not be seen again: nothing is remembered."""
        if self._message is not None:
            return self._message(message)
        return self.tokenizer.count(message_text(message))

    def _keep(self, key: str | tuple[str | None, ...], count: int) -> None:
        self.counted += 1
        self._counts[key] = count
        self._held += _size(key)
        while self._held > self._max and len(self._counts) > 1:
            self._held -= _size(oldest := next(iter(self._counts)))
            del self._counts[oldest]


def _size(key: str | tuple[str | None, ...]) -> int:
    return len(key) if isinstance(key, str) else sum(len(part or "") for part in key)
