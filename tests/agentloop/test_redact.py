"""Secrets: found in every spelling, at every cut, and nothing else is touched."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re
import secrets as random_source
import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._canonical import Json, NotJson, encode
from agentloop.redact import MARK, RedactingStream, Redactor, Secret, secrets_from_env

CANARY = f'Zq{random_source.token_urlsafe(30)}/+é"%'


def spellings(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "plain": secret,
        "percent": quote(secret, safe=""),
        "percent, lower case": re.sub("%..", lambda match: match[0].lower(), quote(secret, safe="")),
        "in json": encode(secret).decode()[1:-1],
        **{f"base64 after {n}": base64.b64encode(b"u:" * n + raw + b" tail").decode() for n in range(3)},
        **{f"base64 after {n} odd": base64.b64encode(b"u" * n + raw).decode() for n in (1, 2, 4)},
        "base64 for urls": base64.urlsafe_b64encode(raw).decode(),
    }


def parts(text: str) -> set[str]:
    """Every part of 8 characters."""
    return {text[at : at + 8] for at in range(len(text) - 7)}


def leaks(shown: str, hidden: str) -> set[str]:
    return parts(shown) & parts(hidden)


def secret_parts(spelling: str) -> str:
    """What of a spelling depends on the secret alone: base64 mixes its ends with the neighbours."""
    return spelling[12:-14] if spelling.startswith(("dT", "dX")) else spelling.rstrip("=")[:-1]


SPELLINGS = spellings(CANARY)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_known_secret_is_found_in_every_spelling(name: str) -> None:
    spelling = SPELLINGS[name]
    shown = Redactor([CANARY], patterns=False).redact_text(f"before {spelling} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert MARK in shown
    assert not leaks(shown, secret_parts(spelling)), CANARY


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_cut_between_chunks_lets_a_part_through(name: str) -> None:
    spelling = SPELLINGS[name]
    text = f"before {spelling} after"
    redactor = Redactor([CANARY])
    whole = Redactor([CANARY], patterns=False).redact_text(text)
    for cut in range(len(text) + 1):
        stream = redactor.stream()
        shown = stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush()
        assert shown == whole, (cut, CANARY)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_chunks_of_any_size_lose_nothing_but_the_secret(size: int) -> None:
    text = "".join(f"{spelling} and " for spelling in SPELLINGS.values()) + CANARY * 3
    redactor = Redactor([CANARY], patterns=False)
    stream = redactor.stream()
    shown = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(shown) + stream.flush() == redactor.redact_text(text)


def test_a_beginning_that_ends_the_text_counts_as_the_secret() -> None:
    redactor = Redactor([CANARY], patterns=False)
    for length in range(len(CANARY)):
        expected = f"key {MARK}" if length >= 8 else f"key {CANARY[:length]}"
        assert redactor.redact_text(f"key {CANARY[:length]}") == expected
        stream = redactor.stream()
        assert stream.feed(f"key {CANARY[:length]}") == "key "
        assert stream.flush() == expected[4:]


def test_only_what_could_begin_a_secret_is_held_back() -> None:
    stream = Redactor(["abcdefgh-secret"], patterns=False).stream()
    assert stream.feed("xxa") == "xx"
    assert stream.feed("bc") == ""
    assert stream.feed("x") == "abcx"
    assert stream.feed("abcdefgh-secreX") == "abcdefgh-secreX"
    assert stream.feed("abcdefgh-") == ""
    assert stream.feed("secret!") == f"{MARK}!"
    assert stream.flush() == ""


def test_a_secret_that_ends_as_it_begins_is_found() -> None:
    secret = "abcd-efgh-abcd"
    for cut in range(len(secret) + 1):
        stream = Redactor([secret], patterns=False).stream()
        shown = (
            stream.feed(f"x {secret[:cut]}")
            + stream.feed(f"{secret[cut:]}")
            + stream.feed(" y")
            + stream.flush()
        )
        assert shown == f"x {MARK} y"


def test_two_secrets_of_which_one_begins_the_other_are_told_apart() -> None:
    for text, shown in {
        "abcdefgh!": f"{MARK}!",
        "abcdefghijkl!": f"{MARK}!",
        "abcdefghij!": f"{MARK}ij!",
    }.items():
        for cut in range(len(text)):
            stream = Redactor(["abcdefgh", "abcdefghijkl"], patterns=False).stream()
            assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush() == shown


PIECES = [CANARY, CANARY[:5], CANARY[:-1], CANARY[3:], CANARY[-2:], "Z", "x", " ", "sk-", "://", "bearer "]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.data())
def test_chunking_does_not_change_what_is_shown(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    redactor = Redactor([CANARY], patterns=False)
    stream, shown, rest = redactor.stream(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown, rest = shown + stream.feed(rest[:size]), rest[size:]
    shown += stream.flush()
    assert shown == redactor.redact_text(text)
    assert CANARY not in shown


# A key, the text around it, and what is shown.
SHAPES = [
    ("sk-proj-a1b2c3d4e5f6g7h8i9j0", "key: {} ok", "key: {} ok"),
    ("sk-ant-api03-AbCdEfGh_1234567890-xyz", "{}", "{}"),
    ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "({})", "({})"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "token={};", "token={};"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnop", " {} ", " {} "),
    ("glpat-abcdefghij1234567890", "{}\n", "{}\n"),
    ("AKIAIOSFODNN7EXAMPLE", "id {},", "id {},"),
    ("xoxb-123456789012-abcdefABCDEF", "{}.", "{}."),
    ("AIzaSyA-1234567890abcdefghijklmnopqrstu", "?key={}&x", "?key={}&x"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEF12", "{}", "{}"),
    ("abc.DEF-123_456~789+/0==", "Authorization: Bearer {}\n", "Authorization: Bearer {}\n"),
    ("dXNlcjpodW50ZXIyMg==", '{{"authorization": "Basic {}"}}', '{{"authorization": "Basic {}"}}'),
    ("plainvalue-99", "x-api-key: {}\r\n", "x-api-key: {}\r\n"),
    ("user:hunter22secret", "https://{}@host/path", "https://{}@host/path"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nq83vEjRW\n-----END RSA PRIVATE KEY-----",
        "a\n{}\nb",
        "a\n{}\nb",
    ),
    ("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq", "cut off {}", "cut off {}"),
]


@pytest.mark.parametrize(("key", "around", "shown"), SHAPES, ids=[key[:12] for key, _, _ in SHAPES])
def test_the_shape_of_a_key_is_enough(key: str, around: str, shown: str) -> None:
    text = around.format(key)
    assert Redactor().redact_text(text) == shown.format(MARK)
    assert Redactor(patterns=False).redact_text(text) == text


@pytest.mark.parametrize(("key", "around", "shown"), SHAPES, ids=[key[:12] for key, _, _ in SHAPES])
def test_a_shape_is_found_wherever_the_chunks_are_cut(key: str, around: str, shown: str) -> None:
    text = around.format(key)
    body = re.sub("-----(BEGIN|END)[A-Z ]*-----", "", key)[4:]
    for cut in range(len(text) + 1):
        stream = Redactor().stream()
        out = stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush()
        assert MARK in out
        # What marks the shape may have been passed on before it was one; never what it marks.
        assert not leaks(out, body), cut
    stream = Redactor().stream()
    out = "".join(map(stream.feed, text)) + stream.flush()
    assert not leaks(out, body)
    assert MARK in out


@pytest.mark.parametrize(
    "text",
    [
        "the task-list and risk-taking of sk-learn-pipelines-and-others",
        "see https://example.org/path?x=1 and http://localhost:8000/v1",
        "ssh://git@example.org/repo.git",
        "the bearer of good news understandingly",
        "a basic internationalization, AKIA, ASIA and might_have_been",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "hf_hub gh_pages ghp_ xox xoxb- AIza sk- glpat- x-api-key",
        "",
    ],
)
def test_ordinary_text_is_the_same_object(text: str) -> None:
    redactor = Redactor([CANARY])
    assert redactor.redact_text(text) == text
    assert Redactor().redact_text("plain") == "plain"
    stream = redactor.stream()
    assert "".join(map(stream.feed, text)) + stream.flush() == text


def test_plain_chunks_pass_as_they_are() -> None:
    stream = RedactingStream(Redactor())
    for chunk in ["The", " tests", " pass", ": A", " 12-3", " under_score", " at http", " end."]:
        assert stream.feed(chunk) is chunk


def test_what_looks_like_a_key_without_end_is_not_held_for_ever() -> None:
    stream = Redactor().stream()
    shown = stream.feed("-----BEGIN PRIVATE KEY-----\n")
    for _ in range(2_000):
        shown += stream.feed("0123456789")
    assert MARK in shown
    assert len(stream._held) <= 16 * 1024


@pytest.mark.parametrize("text", ["sk-", "bearer ", "://a:", "-----BEGIN PRIVATE KEY", "x-api-key", "ghp_"])
def test_hostile_text_costs_no_more_than_its_length(text: str) -> None:
    # A quadratic search would take minutes here, and the test's timeout would end it.
    big = text * (400_000 // len(text)) + "!"
    redactor = Redactor([CANARY])
    redactor.redact_text(big)
    stream = redactor.stream()
    for at in range(0, len(big), 4_000):
        stream.feed(big[at : at + 4_000])
    stream.flush()


def test_values_without_a_secret_are_the_same_object() -> None:
    value = {"a": ["x", 1, 2.5, None, True, {"k": ("y",)}], "b": {}}
    assert Redactor([CANARY]).redact_value(value) is value


def test_texts_and_keys_of_values_are_redacted() -> None:
    value = {"a": [CANARY, 1, {CANARY: (f"x{CANARY}", None)}], "b": "plain"}
    before = copy.deepcopy(value)
    assert Redactor([CANARY]).redact_value(value) == {
        "a": [MARK, 1, {MARK: [f"x{MARK}", None]}],
        "b": "plain",
    }
    assert value == before
    assert Redactor([CANARY]).redact_value(CANARY) == MARK


def test_a_value_nested_too_deep_is_refused() -> None:
    loop: list[Json] = []
    loop.extend([loop, loop])
    redactor = Redactor([CANARY])
    for value in (loop, [CANARY, loop], {"a": loop}):
        with pytest.raises(NotJson, match="nested deeper"):
            redactor.redact_value(value)


def test_short_secrets_are_not_searched_for() -> None:
    assert Redactor(["", "x", "EMPTY", "1234567"]).redact_text("x EMPTY 1234567") == "x EMPTY 1234567"
    assert Redactor(["12345678"]).redact_text("12345678") == MARK


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret(CANARY)
    shown = [
        str(secret), repr(secret), f"{secret}", f"{secret!r:>10}", "x" + secret,
        json.dumps({"key": secret}), encode({"key": secret}).decode(), repr({"key": secret}),
        repr(pickle.dumps(secret)), repr(pickle.loads(pickle.dumps(secret))), repr(secret.__getstate__()),
    ]  # fmt: skip
    assert not [text for text in shown if leaks(text, CANARY)]
    assert json.dumps(secret) == '"***"'
    assert secret.reveal() == CANARY
    assert copy.deepcopy(secret).reveal() == CANARY
    assert Secret(secret).reveal() == CANARY
    assert secret == Secret(CANARY) != Secret("another value")
    assert secret != CANARY
    assert Redactor([secret]).redact_text(CANARY) == MARK


def test_a_traceback_with_locals_does_not_show_a_secret() -> None:
    def call(key: Secret) -> None:
        raise ValueError(f"refused {key}")

    try:
        call(Secret(CANARY))
    except ValueError as error:
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "key = ***" in shown
    assert not leaks(shown, CANARY)


def test_secrets_come_from_the_variables_that_are_set() -> None:
    found = secrets_from_env(["A_KEY", "B_KEY", "C_KEY"], environ={"A_KEY": CANARY, "B_KEY": ""})
    assert [secret.reveal() for secret in found] == [CANARY]
