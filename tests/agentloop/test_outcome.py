"""Error values: their classes, remedies, wire form, and what exceptions become."""

from __future__ import annotations

from typing import Any, get_args

import anyio
import msgspec
import pytest

from agentloop import (
    REMEDIES,
    ClassifiedError,
    Err,
    ErrorValue,
    InvariantViolation,
    ModelError,
    Ok,
    Result,
    cancelled,
    correctable,
    expect,
    fail,
    fatal,
    is_err,
    is_ok,
    map_ok,
    to_error,
    transient,
)
from agentloop.errors import ErrorClass
from agentloop.outcome import Remedy


def test_v013_each_class_has_one_remedy_and_each_remedy_a_class() -> None:
    assert dict(REMEDIES) == {
        "transient": "retry",
        "correctable": "reprompt",
        "fatal": "abort",
        "budget": "halt",
        "cancelled": "abort",
    }
    assert set(REMEDIES) == set(get_args(ErrorClass))
    assert set(REMEDIES.values()) == set(get_args(Remedy))


def test_v014_absent_parts_are_left_out() -> None:
    assert msgspec.to_builtins(transient("x.y", "z")) == {"class": "transient", "code": "x.y", "message": "z"}
    with_detail = transient("x.y", "z", detail={"attempt": 2})
    assert msgspec.to_builtins(with_detail)["detail"] == {"attempt": 2}
    assert cancelled("stop").code == "run.cancelled"
    assert fail("budget", "a.b", "c", source="s").source == "s"


def test_v015_a_broken_invariant() -> None:
    error = to_error(InvariantViolation("broken", detail={"from": "a"}), source="reducer")
    assert (error.error_class, error.code, error.source) == ("fatal", "invariant.violated", "reducer")
    assert error.detail == {"from": "a"}


class Hostile(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("thrown", "code"),
    [
        (Exception("x"), "unknown.error"),
        (ValueError("x"), "unknown.ValueError"),
        (KeyboardInterrupt(), "unknown.KeyboardInterrupt"),
        (Hostile(), "unknown.Hostile"),
        ("text", "unknown.throw"),
        (42, "unknown.throw"),
        (None, "unknown.throw"),
        ({}, "unknown.throw"),
    ],
)
def test_v016_whatever_was_thrown(thrown: Any, code: str) -> None:
    error = to_error(thrown)
    assert (error.error_class, error.code) == ("fatal", code)
    assert error.message


def test_v017_a_carrier_keeps_its_source() -> None:
    value = fatal("context.pinned_overflow", "too much", source="context")
    assert to_error(ClassifiedError(value), source="assembler") == value
    bare = fatal("context.pinned_overflow", "too much")
    assert to_error(ClassifiedError(bare), source="assembler").source == "assembler"


def test_a_model_error_is_a_carrier() -> None:
    thrown = ModelError("slow down", error_class="transient", code="model.rate_limited", retry_after_ms=7)
    thrown.detail["attempts"] = 2
    assert to_error(thrown, source="provider") == ErrorValue(
        error_class="transient",
        code="model.rate_limited",
        message="slow down",
        detail={"attempts": 2, "retryAfterMs": 7},
        source="provider",
    )


@pytest.mark.anyio
async def test_a_cancellation_is_never_an_error() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep(1)
        except BaseException as thrown:
            with pytest.raises(type(thrown)):
                to_error(thrown)
            raise
    assert scope.cancelled_caught


def test_outcomes() -> None:
    good: Result[int] = Ok(1)
    bad: Result[int] = Err(correctable("a.b", "read this"))
    assert (is_ok(good), is_err(good), is_ok(bad), is_err(bad)) == (True, False, False, True)
    assert (good.ok, bad.ok) == (True, False)
    assert map_ok(good, str) == Ok("1")
    assert map_ok(bad, str) is bad
    assert expect(good) == 1
    with pytest.raises(ClassifiedError, match="read this") as raised:
        expect(bad)
    assert raised.value.error.code == "a.b"
