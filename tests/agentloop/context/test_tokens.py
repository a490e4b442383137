"""What texts cost: the vectors of the heuristic, the piecewise rule, exact counts, the cache."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop.context.tokens import (
    HEURISTIC,
    PIECEWISE,
    CountedTexts,
    exact_tokenizer,
    message_text,
    tokenizer_from,
)
from agentloop.errors import AgentLoopConfigError, MissingExtra
from agentloop.messages import Message, ToolCall

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("abcd efgh", 2), ("a1b2c3", 6), ('{"k":[1,2]}', 11),
        ("don't", 3), ("x_y", 3), ("   ", 1), ("é", 1), ("日本", 2), ("…", 1), ("hello world!!", 6), ("a" * 13, 4),
        ("\u00a0", 1), ("3.14159", 7),
    ],
)  # fmt: skip
def test_v104_the_heuristic(text: str, tokens: int) -> None:
    assert HEURISTIC.count(text) == tokens
    assert not HEURISTIC.exact


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (0, ""), (1, "ambe"), (2, "amber "), (3, "amber bron"), (4, "amber bronze "), (5, "amber bronze coba"),
        (10, "amber bronze cobalt denim ebony"), (-5, ""),
    ],
)  # fmt: skip
def test_v105_the_heuristic_cuts_at_the_longest_prefix(limit: int, kept: str) -> None:
    assert HEURISTIC.truncate("amber bronze cobalt denim ebony", limit) == kept


def test_v106_a_search_over_a_counting_function() -> None:
    assert tokenizer_from("chars", len).truncate("abcdefghij", 4) == "abcd"
    words = tokenizer_from("words", lambda text: len(text.split()))
    assert words.truncate("one two three", 2) == "one two "


CODE = (ROOT / "agentloop/context/packer.py").read_text("utf-8")
CJK = (
    "敏捷的棕色狐狸跳过懒狗。我们今天讨论如何把上下文窗口分配给不同的部分，并且保证重要的内容不会丢失。",
    "データベースのすべての記録には出所と信頼度があります。エージェントは道具を使って作業を進めます。",
    "모든 기록에는 출처와 신뢰 수준이 있습니다. 에이전트는 도구를 사용하여 작업을 진행합니다.",
)
SAMPLES = {
    "prose": (ROOT / "LICENSE").read_text("utf-8"),
    "tutorial": (ROOT / "docs/tutorial.md").read_text("utf-8"),
    "code": CODE,
    "json": (ROOT / "agentloop/tasks/task.schema.json").read_text("utf-8"),
    "compact json": json.dumps(
        {"digest": "9f86d081884c7d659a2feaa0c55ad015", "ids": list(range(1000, 1200))}
    ),
    "cyrillic": "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
    "arabic": "الثعلب البني السريع يقفز فوق الكلب الكسول.",
    "greek": "Η γρήγορη καφέ αλεπού πηδά πάνω από το τεμπέλικο σκυλί",
    "thai": "สวัสดีครับ วันนี้เราจะพูดถึงการจัดการบริบท",
    "hindi": "नमस्ते, आज हम संदर्भ प्रबंधन के बारे में बात करेंगे।",
    "german": "Donaudampfschifffahrtsgesellschaftskapitän überprüft die Übertragungsprotokolle.",
    "emoji": "😀🎉👩‍👩‍👧‍👦🇩🇪 café naïve — “quotes” … ≤ ≥ → ─────",
    "mathematical letters": "𝐓𝐡𝐞 𝐪𝐮𝐢𝐜𝐤 Ｔｈｅ ｑｕｉｃｋ",
    **{f"cjk {number}": text for number, text in enumerate(CJK)},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_w37_the_piecewise_rule_undercounts_nothing_and_says_that_it_is_inexact(name: str) -> None:
    exact = exact_tokenizer(message_tokens=0)
    assert exact.exact
    assert not PIECEWISE.exact
    for start in range(0, len(SAMPLES[name]), 400):
        part = SAMPLES[name][start : start + 400]
        assert PIECEWISE.count(part) >= exact.count(part), part
    assert PIECEWISE.count(SAMPLES[name]) <= 4 * exact.count(SAMPLES[name])


@pytest.mark.parametrize(
    "text",
    [
        "aGVsbG8gd29ybGQgdGhpcyBpcyBhIGxvbmdlciB0ZXh0IHRoYXQgaXMgZW5jb2RlZA==",
        "春眠不覺曉，處處聞啼鳥。夜來風雨聲，花落知多少。",
    ],
)
def test_what_the_piecewise_rule_undercounts_it_does_not_by_much(text: str) -> None:
    assert PIECEWISE.count(text) >= 0.85 * exact_tokenizer().count(text)


def test_w37_line_breaks_cost_and_chinese_costs_one_a_character() -> None:
    assert PIECEWISE.count("a\nb\nc") - PIECEWISE.count("a b c") == 2
    assert PIECEWISE.count("春眠不覺曉") == 5
    assert PIECEWISE.count("1234567") == 3
    assert (PIECEWISE.count(""), PIECEWISE.count(" ")) == (0, 1)


def test_exact_counts_are_those_of_the_vocabulary() -> None:
    exact = exact_tokenizer()
    assert exact.count("hello world") == 2
    assert exact.truncate("hello world", 1) == "hello"
    assert exact.truncate("hello world", 0) == ""
    assert exact.count_message(Message(role="user", content="hello world")) == 6
    assert exact_tokenizer(encoding="cl100k_base").name == "toktok:cl100k_base"


def test_an_encoding_nobody_knows_is_refused() -> None:
    with pytest.raises(AgentLoopConfigError, match="o200k_base"):
        exact_tokenizer(encoding="p50k")


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "toktok":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"loopwright\[tokens\]"):
        exact_tokenizer()


# ------------------------------------------------------------------------------- messages


def test_calls_are_part_of_what_a_message_is_charged_for() -> None:
    calls = (
        ToolCall(id="1", name="search", arguments={"query": "tee ☕", "k": [1, None]}),
        ToolCall(id="2", name="raw", raw_arguments="{oops"),
    )
    written = 'search({"query":"tee ☕","k":[1,null]})\nraw({oops)'
    assert message_text(Message(role="assistant", tool_calls=calls)) == written
    assert message_text(Message(role="assistant", content="ok", tool_calls=calls)) == f"ok\n{written}"
    assert message_text(Message(role="user", content="plain")) == "plain"


def test_what_was_counted_first_is_forgotten_first() -> None:
    counts = CountedTexts(tokenizer_from("chars", len), max_characters=10)
    for text in ("aaaa", "bbbb", "cccc", "cccc", "bbbb"):
        counts.text(text)
    assert counts.counted == 3
    assert counts.text("aaaa") == 4
    assert counts.counted == 4
