"""Patterns: the same answer as the standard engine, in linear time, whatever the text."""

from __future__ import annotations

import random
import re
import time
import warnings

import pytest

from agentloop.patterns import MAX_PATTERN, MAX_SUBJECT, Pattern, PatternRefused
from tests.work import HANG_S

CATASTROPHIC = (
    r"(a+)+$", r"(a*)*$", r"(a+)*$", r"(a*)+$", r"(a?){30}a{30}", r"(a|a)*$", r"(a|aa)+$", r"(a|a?)+$", r"(a|ab)*c",
    r"(.*)*x", r"(.*a){12}x", r"(.+)+x", r"(\w+)*!", r"(\w+\s?)*!", r"(\d+)+x", r"([a-z]+)+1", r"([a-zA-Z]+)*1",
    r"(([a-z])+.)+[A-Z]([a-z])+$", r"^(a|b|ab)*c$", r"(x+x+)+y", r"(x*)*y", r"(a|b|ab)*!", r"(.|\n)*!x",
    r"(?:.*,){11}P", r"^([a0]|a)+$x", r"(a+){2,}b", r"((a+)+)+b", r"(?:a+b?)+c", r"(a?a?)*b", r"(ab|a)(bc|b)*x",
    r".*.*.*x", r"\s*\s*\s*x", r"\d+\d+\d+x", r"error.*in.*line", r"a.*b.*c.*d", r"(.*)(.*)(.*)x", r"\w*\w*\w*!",
    r"[^x]*[^y]*z", r"^.*?(.*)x", r"(?:\s+|\s)*x", r"\s+$", r" +x", r"(\s*)+$x", r"(?i)(a|A)*b", r"(^a*)*b",
    r"(a*?)*?b", r"(?:a|b|c|a)+d", r"(([^,]*),)*([^,]*)$x", r"(\.*\w*)*!", r"^(([a-z])+\.)+[A-Z]$", r"(aa|aaa)*b",
)  # fmt: skip

ATTACKS = (
    "a" * MAX_SUBJECT,
    "aB" * (MAX_SUBJECT // 2),
    " " * MAX_SUBJECT,
    "1" * MAX_SUBJECT,
    "errorin" * 9_362,
)

ORDINARY = (
    r"\d+ passed", r"^OK$", r"(?m)^OK$", r"(?i)success", r"Ran \d+ tests? in [\d.]+s", r"error: .*line \d+", r"foo|bar",
    r"\bdone\b", r"[A-Z]{3}-\d{1,5}", r"v\d+\.\d+(\.\d+)?", r"(?s)begin.*end", r"\s+$", r"[^\s]+@[^\s]+", r"a{3,}",
    r"100(\.0+)?%", r"^\s*$", r"(?:\w+ )+finished", r"\[\w+\]", r"\(\d+\)", r"0 (?:errors|failures)", r"é+", r".",
    r"\Astart", r"end\Z", r"(?x) spaced   out", r"[\w.-]+\.py::\w+", r"\x41", r"\t", r"[^a-z]", r"\W", r"\D\S",
)  # fmt: skip


def test_u16_there_are_fifty_catastrophic_patterns() -> None:
    assert len(set(CATASTROPHIC)) >= 50


@pytest.mark.parametrize("text", CATASTROPHIC)
def test_u16_catastrophic_patterns_answer_at_once(text: str) -> None:
    pattern = Pattern(text)
    for attack in ATTACKS:
        start = time.process_time()
        pattern.search(attack)
        assert time.process_time() - start < HANG_S / 10  # of hours


@pytest.mark.parametrize("text", ORDINARY)
def test_u16_ordinary_patterns_are_accepted_and_agree_with_the_standard_engine(text: str) -> None:
    subjects = ("", "OK", "OK\n", "x\nOK\ny", "12 passed", "error: x line 3", "begin\nend", "ABC-1", "all done.",
                "v1.2.3", "a b finished", "100.0%", "  ", "é", "start", "the end", "spacedout", "t/a.py::x", "A\t")  # fmt: skip
    pattern, standard = Pattern(text), re.compile(text)
    for subject in subjects:
        assert pattern.search(subject) is (standard.search(subject) is not None), subject
    lines = "test_module.py::test_name PASSED [ 12%]\n" * (MAX_SUBJECT // 40)
    start = time.process_time()
    pattern.search(lines)
    assert time.process_time() - start < HANG_S / 10  # the square takes as long


def generated(source: random.Random, depth: int) -> str:
    atoms = (
        "a",
        "b",
        ".",
        r"\d",
        r"\w",
        r"\s",
        "[ab]",
        "[^a]",
        "^",
        "$",
        r"\b",
        r"\B",
        r"\A",
        r"\Z",
        "é",
        "[0-9é]",
        "A",
    )
    choice = source.random()
    if depth == 0 or choice < 0.35:
        return source.choice(atoms)
    inner = generated(source, depth - 1)
    if choice < 0.5:
        return f"(?:{inner}){source.choice(('*', '+', '?', '{2}', '{0,3}', '{1,}', '*?', '+?'))}"
    other = generated(source, depth - 1)
    if choice < 0.65:
        return f"(?:{inner}|{other})"
    if choice < 0.7:
        return f"(?{source.choice(('i', 's', 'm', 'a', 'im', '-i'))}:{inner})"
    return inner + other


def test_random_patterns_agree_with_the_standard_engine() -> None:
    source, compared = random.Random(6), 0
    for _ in range(2_000):
        text = source.choice(("", "(?i)", "(?m)", "(?s)")) + generated(source, 3)
        pattern, standard = Pattern(text), re.compile(text)
        for _ in range(6):
            # Not the empty text, where versions of the standard engine disagree about \B.
            subject = "".join(source.choices("abAé1 \n_", k=source.randrange(1, 8)))
            assert pattern.search(subject) is (standard.search(subject) is not None), (text, subject)
            compared += 1
    assert compared == 12_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("x" * (MAX_PATTERN + 1), "257 characters"),
        (r"(a)\1", "back-reference"),
        (r"(?P<n>a)(?P=n)", "back-reference"),
        (r"(?=a)", "look-ahead"),
        (r"(?<!a)b", "look-behind"),
        (r"(a)?(?(1)b|c)", "conditional"),
        (r"(?>a*)b", "atomic"),
        (r"a*+b", "possessive"),
        (r"a{1000}", "unfolds"),
        (r"((a{40}){40}){40}", "unfolds"),
        ("(", "cannot be read"),
        ("[z-a]", "cannot be read"),
        ("a**", "cannot be read"),
        ("a{99999999999}", "cannot be read"),
        ("(?z)", "cannot be read"),
    ],
)
def test_what_has_no_bounded_automaton_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(PatternRefused, match=why):
        Pattern(text)


@pytest.mark.parametrize("text", ["(?:){99999}", "(?:(?:)*)*a", "(" * 100 + "a" + ")" * 100, "()*", "a||b"])
def test_odd_patterns_are_no_trouble(text: str) -> None:
    assert Pattern(text).search("a")


def test_only_the_end_of_a_long_text_is_searched() -> None:
    assert Pattern("needle$").search("x" * MAX_SUBJECT + "needle")
    assert not Pattern("needle").search("needle" + "x" * MAX_SUBJECT)


def test_texts_with_very_many_states_and_characters_keep_memory_bounded() -> None:
    source = random.Random(7)
    pattern = Pattern(r"a[ab]{14}c")
    assert not pattern.search("".join(source.choices("ab", k=MAX_SUBJECT)))
    assert len(pattern._states) <= 1_000
    assert not pattern.search("".join(chr(code) for code in range(0x3000, 0x3000 + 20_000)))
    assert len(pattern._kinds) <= 4_000


def test_reading_a_pattern_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pattern(r"\[x\]").search("[x]")
