"""What can go wrong with a chat server, as classified errors.

`STATUS` maps what servers answer, `CODES` what they say in the body. Nothing of a request, a
header or a key gets into an error; what a server says is shortened and redacted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from agentloop._canonical import Json
from agentloop.errors import ErrorClass, ModelError

__all__ = ("CODES", "STATUS", "broken", "rejected", "reported", "unreachable")

#: HTTP status to class and code; other 4xx are ``provider.bad_request``, 5xx as 500.
STATUS: Final[Mapping[int, tuple[ErrorClass, str]]] = MappingProxyType(
    {
        400: ("fatal", "provider.bad_request"),
        401: ("fatal", "auth.invalid_key"),
        402: ("budget", "provider.quota"),
        403: ("fatal", "auth.invalid_key"),
        404: ("fatal", "provider.bad_request"),
        408: ("transient", "model.timeout"),
        409: ("transient", "model.unavailable"),
        422: ("fatal", "provider.bad_request"),
        425: ("transient", "model.unavailable"),
        429: ("transient", "model.rate_limited"),
        500: ("transient", "model.unavailable"),
    }
)

#: A ``code`` or ``type`` in the error body that says more than the status.
CODES: Final[Mapping[str, tuple[ErrorClass, str]]] = MappingProxyType(
    {
        "insufficient_quota": ("budget", "provider.quota"),
        "billing_hard_limit_reached": ("budget", "provider.quota"),
        "context_length_exceeded": ("transient", "context.length_exceeded"),
        "exceed_context_size_error": ("transient", "context.length_exceeded"),
        "content_filter": ("correctable", "model.filtered"),
        "content_policy_violation": ("correctable", "model.filtered"),
        "rate_limit_exceeded": ("transient", "model.rate_limited"),
        "server_error": ("transient", "model.unavailable"),
        "invalid_api_key": ("fatal", "auth.invalid_key"),
    }
)

#: What to do about it, by code.
_HINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auth.invalid_key": "the key was refused: check it, and that it belongs to this server",
        "provider.quota": "the account has no quota left",
        "context.length_exceeded": "the prompt is longer than the model's context",
        "model.rate_limited": "too many requests",
        "model.filtered": "the server's content filter refused the prompt",
    }
)

_SAID_LIMIT: Final = 300


def broken(problem: str) -> ModelError:
    """Return the error for an answer that broke off or cannot be read."""
    return ModelError(problem, error_class="transient", code="model.stream_broken")


def unreachable(server: str, *, timed_out: bool, kind: str) -> ModelError:
    """Return the error for a server that gave no answer at all."""
    code = "model.timeout" if timed_out else "model.unavailable"
    problem = "did not answer in time" if timed_out else "could not be reached: is it running there?"
    return ModelError(f"{server} {problem}", error_class="transient", code=code, detail={"error": kind})


def _classify(status: int | None, body: Mapping[str, Json]) -> tuple[ErrorClass, str]:
    for name in ("code", "type"):
        known = CODES.get(str(body.get(name)))
        if known is not None:
            return known
    said = str(body.get("message", "")).lower()
    if status in (None, 400, 413) and "context" in said and ("length" in said or "exceed" in said):
        return "transient", "context.length_exceeded"
    if status is None:
        return "transient", "model.stream_broken"
    return STATUS.get(status) or STATUS[500 if status >= 500 else 400]


def rejected(
    server: str,
    status: int,
    body: object,
    headers: Mapping[str, str],
    redact: Callable[[str], str],
) -> ModelError:
    """Return the error for an HTTP status that is no success."""
    said: Mapping[str, Json] = body if isinstance(body, dict) else {}
    error_class, code = _classify(status, said)
    message = f"{server} answered {status}"
    if hint := _HINTS.get(code):
        message += f": {hint}"
    # A refused key is echoed back in part by some servers, so what they say then is left out.
    text = said.get("message") if code != "auth.invalid_key" else None
    if isinstance(text, str) and text:
        message += f" ({redact(text)[:_SAID_LIMIT]})"
    return ModelError(
        message,
        error_class=error_class,
        code=code,
        retry_after_ms=_retry_after_ms(headers),
        detail={"status": status},
    )


def reported(error: Json) -> ModelError:
    """Return the error that a server reported inside its stream."""
    body = error if isinstance(error, dict) else {"message": error}
    number = body.get("code")
    status = number if type(number) is int and 400 <= number < 600 else None
    error_class, code = _classify(status, body)
    detail: dict[str, Any] = {"status": status} if status else {}
    # What the server says may repeat a secret, and here nobody knows which: only known words.
    known = [word for word in (body.get("code"), body.get("type")) if isinstance(word, str) and word in CODES]
    said = f" ({known[0]})" if known else ""
    hint = _HINTS.get(code, "the server broke the answer off")
    return ModelError(
        f"the server reported an error{said}: {hint}", error_class=error_class, code=code, detail=detail
    )


def _retry_after_ms(headers: Mapping[str, str]) -> int | None:
    for name, factor in (("retry-after-ms", 1), ("retry-after", 1_000)):
        try:
            wait_ms = float(headers.get(name, "")) * factor
        except ValueError:  # absent, or the date form, which needs a clock both sides agree on
            continue
        if 0 <= wait_ms < 1e9:
            return int(wait_ms)
    return None
