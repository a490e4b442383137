"""What went wrong without ending the run: told once, as a frame while that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentloop.frames import ERROR
from agentloop.loop.failures import Failed, error_content, message_of
from agentloop.loop.ingress import Ingress
from agentloop.loop.output import Output
from agentloop.loop.record import RunRecord

__all__ = ("Complaints",)

_log = logging.getLogger("agentloop.loop")


class Complaints:
    """Takes note of failures.

    Attributes:
        warnings: What could not be shown as a frame any more.
        cycle: Returns the current iteration.
    """

    def __init__(
        self,
        run_id: str,
        cycle: Callable[[], int],
        *,
        ingress: Ingress,
        record: RunRecord,
    ) -> None:
        self._run_id, self.cycle = run_id, cycle
        self._ingress, self._record = ingress, record
        self._told: set[tuple[str, str, str]] = set()
        self.warnings: list[str] = []
        #: Set by the driver as soon as there is one.
        self.output: Output | None = None

    def __call__(self, phase: str, error: Exception, /, *, fatal: bool = False, once_per: str = "") -> None:
        """Take note of a failure; show it as an ERROR frame while that is still possible.

        Raises:
            Failed: It is fatal.
        """
        output = self.output
        assert output is not None
        if fatal and not output.ended:
            raise Failed(phase, error) from error
        text = self._ingress.redact_text(f"{phase}: {type(error).__name__}: {message_of(error)}")
        key = (phase, once_per, text)
        if key in self._told:
            return
        self._told.add(key)
        self.log(text, error)
        if output.ended:
            self.warnings.append(text)
            return
        content = self.content(phase, error, fatal=False)
        self._record.fact("callback_failed", {"phase": phase, "error": content})
        output.stage(ERROR, content)

    def warn(self, text: str) -> None:
        """Keep a text for `LoopResult.warnings`."""
        self.warnings.append(self._ingress.redact_text(text))

    def log(self, text: str, error: BaseException | None = None) -> None:
        """Write a log record; a handler that is broken breaks nothing else."""
        # A traceback may quote a secret, so where secrets are hidden it is left out.
        with suppress(Exception):
            _log.warning("run %s: %s", self._run_id, text, exc_info=None if self._ingress.hides else error)

    def content(self, phase: str, error: BaseException, *, fatal: bool) -> dict[str, Any]:
        """Return the content of the ERROR frame that tells of it."""
        content = error_content(phase, error, fatal=fatal, iteration=self.cycle())
        return {**content, "message": self._ingress.redact_text(content["message"])}
