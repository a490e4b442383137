"""A finished run as graders see it, whichever driver made it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias

from agentloop._canonical import Json, decode, encode
from agentloop.determinism import digest
from agentloop.orchestrator.ledger import RunFile, ToolUse
from agentloop.orchestrator.state import Outcome, Usage
from agentloop.ports import LedgerStore
from agentloop.reproduction import ReplayReport, replay

__all__ = ("RunStatus", "RunView", "view_file")

#: What of a path can be kept and compared word by word.
PATH_WORDS: Final = 200

RunStatus: TypeAlias = Literal["completed", "failed", "halted"]


class RunView:
    """What can be asked of a run. Everything is a pure function of its record.

    Attributes:
        run_id: The run.
        outcome: How it ended; the error has its code.
        usage: What it spent.
        phase_trace: ``from->to`` of every step.
        tool_calls: The calls that were made, in the order of their results.
        context_reports: What its windows say about themselves.
    """

    def __init__(
        self,
        run_id: str,
        *,
        store: LedgerStore,
        outcome: Outcome,
        usage: Usage,
        phase_trace: Sequence[str],
        tool_calls: Sequence[ToolUse],
        context_reports: Sequence[Mapping[str, Json]] = (),
        story: Callable[[], bytes] = bytes,
    ) -> None:
        self.run_id, self.outcome, self.usage = run_id, outcome, usage
        self.phase_trace, self.tool_calls = tuple(phase_trace), tuple(tool_calls)
        self.context_reports = tuple(context_reports)
        self.store, self._story = store, story

    @property
    def status(self) -> RunStatus:
        """``completed``, ``failed`` or ``halted``."""
        return self.outcome.status

    @property
    def output(self) -> str:
        """The answer; empty unless the run was completed."""
        return (self.outcome.output or "") if self.status == "completed" else ""

    @property
    def error_code(self) -> str | None:
        """Why the run was not completed."""
        return None if self.outcome.error is None else self.outcome.error.code

    @property
    def steps(self) -> int:
        """How many decisions led on."""
        return len(self.phase_trace)

    @property
    def phase_path(self) -> list[str]:
        """The phases that were entered, repeated ones once."""
        path: list[str] = []
        for step in self.phase_trace:
            entered = step.rpartition("->")[2]
            if not path or path[-1] != entered:
                path.append(entered)
        return path

    @property
    def tool_sequence(self) -> list[str]:
        """The names of the calls that were made."""
        return [use.name for use in self.tool_calls]

    @property
    def path(self) -> str:
        """The phases, and behind a bar the tools, in words; empty for one of more than `PATH_WORDS`."""
        phases = [step.rpartition("->")[2] for step in self.phase_trace]
        words = [*(step.partition("->")[0] for step in self.phase_trace[:1]), *phases]
        if self.tool_calls:
            words += ["|", *self.tool_sequence]
        return " ".join(words) if len(words) <= PATH_WORDS else ""

    @cached_property
    def replayed(self) -> ReplayReport:
        """What a replay of the record finds; made on first use, linear in its length."""
        return replay(self.store, self.run_id)

    @cached_property
    def story(self) -> bytes:
        """All that was decided and found out, in canonical JSON: two runs with the same one are the same."""
        return self._story()

    @cached_property
    def fingerprint(self) -> str:
        """Eight digits for the path: phases and tools, not times, contents or counts."""
        return digest([*self.phase_trace, "|", *self.tool_sequence])

    @cached_property
    def fingerprint2(self) -> str:
        """Sixteen digits that also tell apart how calls and the run came out."""
        told = {
            "path": self.phase_trace,
            "tools": [[use.name, use.ok, use.error_code] for use in self.tool_calls],
            "outcome": [self.status, self.error_code],
        }
        return hashlib.sha256(encode(told)).hexdigest()[:16]


def view_file(file: RunFile, store: LedgerStore) -> RunView:
    """Return the view of an orchestrated run that has ended."""
    assert file.outcome is not None
    reports = file.context_reports
    return RunView(
        file.run_id,
        store=store,
        outcome=file.outcome,
        usage=file.usage,
        phase_trace=file.phase_trace,
        tool_calls=file.tool_calls,
        # As they are on record, whoever made them: lists, not tuples.
        context_reports=decode(encode(reports)) if reports else (),
        story=file.serialise,
    )
