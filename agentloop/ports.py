"""What the core needs from outside, and what it offers to outside, as protocols.

Streams: `Source`, `Sink`, `FrameDuplex`. Models: `ModelCore`, `Provider`. The window a model
sees: `Assembler`. Observers: `Tap`. Memory: `OutcomeBridge`. Records: `LedgerStore`,
`RunIndex`. Nothing here does anything.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from agentloop._canonical import Json
from agentloop._numbers import check_amount, check_count
from agentloop.frames import Frame, FrameLike
from agentloop.messages import LoopResult, Message, RunOutcome
from agentloop.outcome import Result

__all__ = (
    "Assembler",
    "AssemblyRequest",
    "Context",
    "Estimates",
    "FrameDuplex",
    "FrameStats",
    "Head",
    "JoiningBridge",
    "LedgerEntry",
    "LedgerStore",
    "ModelCall",
    "ModelCore",
    "ModelReply",
    "ModelRequest",
    "NodeOrder",
    "OutcomeBridge",
    "ProjectLedger",
    "ProjectMemory",
    "Provider",
    "RunIndex",
    "RunSummary",
    "Sink",
    "Source",
    "StreamingProvider",
    "Summary",
    "Tap",
    "TokenUsage",
    "ToolSpec",
)

# ---------------------------------------------------------------------------------- streams


class FrameStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a buffer has seen: ``written == read + dropped + buffered + discarded``, always."""

    buffered: int
    limit: int | None
    strategy: str
    #: Every frame offered, dropped ones included.
    written: int
    read: int
    #: Lost to the overflow strategy.
    dropped: int
    #: Thrown away by an abort or an error end.
    discarded: int
    ended: bool
    aborted: bool
    paused: bool
    piped: bool


class Sink(Protocol):
    """Where frames are written."""

    @property
    def paused(self) -> bool:
        """True while a write would wait."""

    @property
    def ended(self) -> bool:
        """True once no more frames may be written."""

    async def write(self, frame: FrameLike, /) -> bool:
        """Write a frame, waiting while paused; False if it was dropped or ignored.

        Raises:
            StreamEnded: After `end`.
            StreamAborted: After the reader aborted, also while waiting.
        """

    def write_nowait(self, frame: FrameLike, /) -> bool:
        """As `write`, but raise ``anyio.WouldBlock`` instead of waiting."""

    async def ready(self) -> None:
        """Return when a write would not wait."""

    def end(self, error: BaseException | None = None, /) -> bool:
        """Say that no more frames come; with an error, buffered frames are thrown away.

        The first end wins and returns True; later ones return False.
        """


class Source(Protocol):
    """Where frames are read, by one reader at a time."""

    @property
    def ended(self) -> bool:
        """True once no further frame can be read."""

    async def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            anyio.EndOfStream: After a normal end, or after an abort without error.
            StreamFailed: After an error end; the error is the cause.
            StreamBusy: Somebody else is reading, or the source is piped.
        """

    def receive_nowait(self) -> Frame:
        """As `receive`, but raise ``anyio.WouldBlock`` instead of waiting."""

    def __aiter__(self) -> AsyncIterator[Frame]:
        """Iterate until the end. Leaving early neither ends nor aborts the stream."""

    def pipe(self, sink: Sink, /, *, end: bool = True, on_error: str = "abort") -> Sink:
        """Attach a sink and return it; the owner of the source moves the frames."""

    def abort(self, error: BaseException | None = None, /) -> bool:
        """Discard what is buffered, wake blocked writers, tell the owner. Idempotent."""

    def statistics(self) -> FrameStats:
        """Return the counts so far."""

    async def collect(self, max_frames: int | None = None, /) -> list[Frame]:
        """Read to the end, or that many frames."""


@runtime_checkable
class FrameDuplex(Protocol):
    """A pair of independent ends: pausing the sink says nothing about the source."""

    @property
    def source(self) -> Source: ...

    @property
    def sink(self) -> Sink: ...

    def abort(self, reason: str | None = None, /) -> bool:
        """Stop what the duplex is doing now. Synchronous; True the first time."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None: ...

    async def aclose(self) -> None:
        """End both halves and wait until nothing of the duplex runs any more."""


# ----------------------------------------------------------------------------------- models


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is told about a tool."""

    name: str
    description: str = ""
    #: A JSON Schema of the arguments object.
    schema: dict[str, Any] = {}


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One model call."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        check_count("max_output_tokens", self.max_output_tokens, 1, optional=True)
        check_amount("temperature", self.temperature, optional=True)


class ModelCore(Protocol):
    """The one thing an adapter for a model implements: one call, streamed, never retried."""

    def stream(self, request: ModelRequest, /) -> AsyncGenerator[Frame, None]:
        """Yield TEXT, REASONING, TOOL_CALL, USAGE frames as they come, and DONE last.

        Whoever stops reading before the end closes the generator, which ends the call.

        Raises:
            ModelError: Classified; raised before or after the first frame.
        """


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a model call cost, as the server counted it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        check_count("prompt_tokens", self.prompt_tokens, 0)
        check_count("completion_tokens", self.completion_tokens, 0)


class ModelReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a model answered."""

    #: An assistant message.
    message: Message
    usage: TokenUsage = TokenUsage()
    #: ``end_turn``, ``tool_use``, ``max_tokens`` or ``stop_sequence``.
    stop_reason: str = "end_turn"


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """Which call of which run this is."""

    run_id: str = ""
    #: Ours, one for each attempt.
    step_id: str = ""
    #: 1, 2, … while the same window is tried again.
    attempt: int = 1


class Provider(Protocol):
    """A model as the orchestrator asks it: one call, never retried, its failures classified.

    One that raises anything but `ClassifiedError` has a bug, which ends the run.

    It may say of itself ``native_tools = True`` (it sends the tools, a window need not describe
    them) and ``mid_system = False`` (a window has its system messages at the beginning).
    """

    @property
    def name(self) -> str:
        """For people."""

    async def generate(self, request: ModelRequest, call: ModelCall, /) -> Result[ModelReply]:
        """Return the reply, or why there is none."""


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider whose replies can be seen while they come; the frames fold to the same reply."""

    def stream(self, request: ModelRequest, call: ModelCall, /) -> AsyncGenerator[Frame, None]:
        """As `ModelCore.stream`.

        Raises:
            ClassifiedError: The call failed, before or after the first frame.
        """


# ------------------------------------------------------------------------------- the window


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """How near the counts of a run's windows were to what the provider said they cost."""

    #: Windows that were answered and whose cost was told.
    windows: int = 0
    #: The largest share by which one cost more than was counted; 0 if none did.
    undercount: float = 0.0

    def seen(self, counted: int, reported: int) -> Estimates:
        """Return this with one window more; one whose counts say nothing is passed over."""
        if counted <= 0 or reported <= 0:
            return self
        share = max(self.undercount, reported / counted - 1)
        return Estimates(windows=self.windows + 1, undercount=share)

    def margin(self, start: float, *, least: float = 0.01) -> float:
        """Return the share of a window to keep back: from ``start`` towards what was observed."""
        if start <= least:
            return start
        aim = min(start, max(least, self.undercount))
        return aim + (start - aim) / (1 + self.windows)


class AssemblyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a window is made from. Everything a run knows that a model may be shown."""

    run_id: str
    #: Completed model calls so far.
    step: int
    goal: str
    #: Shared with the run and read-only. Number 0 is the goal as a user message.
    transcript: Sequence[Message]
    #: What the model may call now; empty if it may call nothing.
    tools: Sequence[ToolSpec] = ()
    #: Something the model has to be told in this window, as that its tool calls are used up.
    note: str | None = None
    #: The provider sends the tools by itself: do not describe them in prose, charge their schemas.
    native_tools: bool = False
    #: The provider takes system messages after others; else they are joined to the leading one.
    mid_system: bool = True
    #: The usable budget is to be multiplied by this: below 1 after a model found a window too long.
    shrink: float = 1.0
    #: The model tokens the run may still spend, this window included; None if there is no limit.
    tokens_left: int | None = None
    #: Texts of the summaries made in this run, oldest first.
    summaries: Sequence[str] = ()
    #: How good the counts of earlier windows of this run were.
    estimates: Estimates = Estimates()


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A window: what one model call is shown."""

    messages: tuple[Message, ...]
    #: What it costs, as far as it was counted; charged against the run's token budget.
    tokens: int
    #: What was placed, cut and left out, as JSON.
    report: dict[str, Json] | None = None
    #: Room kept free for the answer; None leaves it to the run's budget.
    max_output_tokens: int | None = None
    #: Retrievals whose passages are shown, for feedback.
    retrieval_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count("tokens", self.tokens, 0)
        check_count("max_output_tokens", self.max_output_tokens, 1, optional=True)


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A summary an assembler had made, to be recorded and paid before it assembles again."""

    text: str
    usage: TokenUsage = TokenUsage()


class Assembler(Protocol):
    """Makes the window of each model call."""

    async def assemble(self, request: AssemblyRequest, /) -> Context | Summary:
        """Return the window, or a summary to record first: it is then asked again with it.

        The same request has to give the same window, but for what was retrieved from outside.

        Raises:
            ClassifiedError: ``transient`` is tried again, ``budget`` halts the run, ``fatal``
                (as ``context.pinned_overflow``) ends it. Any other exception ends it too.
        """


# -------------------------------------------------------------------------------- observers


class Tap(Protocol):
    """Whoever must see every frame: written before the lossy output buffer, and awaited."""

    @property
    def fatal(self) -> bool:
        """Whether a failure of `write` ends the run (phase ``sink``) or only is reported."""

    async def write(self, frame: Frame, /) -> object:
        """Take one Out frame."""


class OutcomeBridge(Protocol):
    """The loop's way into a memory: facts as they change, the outcome before it is announced."""

    @property
    def strict(self) -> bool:
        """Whether a failed write ends the run instead of being reported."""

    async def fact(self, name: str, value: Json, /, *, op: str, by: str, iteration: int, cause: str) -> None:
        """Write one changed symbolic fact.

        Args:
            name: Of the fact.
            value: None for a retract.
            op: ``assert`` or ``retract``.
            by: Who changed it: ``agent``, ``evaluator``, ``tool`` or ``developer``.
            iteration: The cycle it happened in.
            cause: Unique for this write; a repeated one is recognised and skipped.
        """

    async def record_outcome(self, outcome: RunOutcome, /) -> Mapping[str, Json]:
        """Write the run, take its transition, give its reward; return what was done."""


@runtime_checkable
class JoiningBridge(OutcomeBridge, Protocol):
    """A bridge that can put the end of a ledger into its own transaction."""

    def shares(self, ledger: LedgerStore | None, /) -> bool:
        """Return whether the ledger is in the same file."""

    async def record_outcome(
        self, outcome: RunOutcome, /, *, seal: Callable[[Mapping[str, Json]], None] | None = None
    ) -> Mapping[str, Json]:
        """As `OutcomeBridge.record_outcome`, with ``seal`` called inside the transaction.

        It is given what is about to be returned; what it raises keeps nothing. It may be
        called again, and on another thread.
        """


class NodeOrder(Protocol):
    """Says which node of a task comes next; both halves go to `create_looping_agent_loop`."""

    def __call__(self, index: int, /) -> Any:
        """Return the next node, or None when all succeeded or none is ready. May be awaitable."""

    def should_continue(self, result: LoopResult, index: int, /) -> Any:
        """Take note of how the newest node ended; true while there is another. May be awaitable."""

    def take_up(self, results: Sequence[LoopResult], node: Any, /) -> None:
        """Be where a run was that is resumed: how its nodes so far ended, and its newest node."""

    @property
    def complete(self) -> bool:
        """Whether every node has succeeded in this run."""

    def explain(self) -> Sequence[str]:
        """Return why the newest node was chosen, a line each."""


class ProjectMemory(Protocol):
    """Everything durable of a project behind one file; what the group ``agentloop.bridges`` opens."""

    @property
    def ledger(self) -> ProjectLedger:
        """The ledgers of the project's runs."""

    def bridge(self, *, task: str, node: str | None) -> OutcomeBridge:
        """Return the bridge of a run that stands for a node; with None, of one with its own nodes."""

    def order(
        self, *, task: str, nodes: Sequence[Mapping[str, Any]], by: str, resumed: bool = False
    ) -> NodeOrder:
        """Declare the nodes (``id``, ``goal``, ``after``) and return their order, ``listed`` or ``graph``.

        A run that is ``resumed`` does not begin at the task's start again.
        """

    def learned(self) -> Sequence[str]:
        """Return what the memory has learned, a line each, for people."""

    def close(self) -> None:
        """Write what waits and close the file."""


# ---------------------------------------------------------------------------------- records


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored entry of a run. `RunLedger` in `ledger` reads the body."""

    #: 1, 2, 3, … without gaps.
    seq: int
    #: Milliseconds since 1970 by the run's clock; says nothing about order.
    at: int
    kind: str
    #: Canonical JSON of the entry's data, exactly as hashed.
    body: bytes
    #: SHA-256 over the previous entry's hash, the entry's header and its body; 32 bytes.
    hash: bytes


#: Number and hash of the newest entry; (0, 32 zero bytes) of a run that has none.
Head: TypeAlias = tuple[int, bytes]


class LedgerStore(Protocol):
    """Keeps the entries of runs. Synchronous, and safe to use from one thread at a time.

    A store may declare ``blocking = True``; the loop then calls it in a worker thread.
    """

    @property
    def blocking(self) -> bool:
        """True if `append` can take long enough to matter to an event loop."""

    def append(
        self,
        run: str,
        entries: Sequence[LedgerEntry],
        /,
        *,
        expected: int,
        sync: bool,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Head:
        """Append entries after number ``expected``; all of them or none.

        With ``sync`` they, and everything the run had before, survive a loss of power once this
        returns; ``entries`` may be empty then.

        Args:
            blobs: What the entries refer to by the hexadecimal SHA-256 of its bytes; kept
                before the entries are, once for all runs of the store.

        Raises:
            LedgerConflict: The run's newest entry is another one.
            DamagedLedger: The entries do not continue the chain, or what is stored is broken.
            LedgerUnavailable: The medium refused; nothing of this call is acknowledged.
        """

    def blob(self, digest: str, /) -> bytes | None:
        """Return a blob; None for one that was never kept. The reader checks the digest."""

    def read(self, run: str, /, *, after: int = 0) -> Iterator[LedgerEntry]:
        """Yield the entries after that number in order; nothing for an unknown run.

        They are as stored: who wants them checked reads through `ledger.RunLedger`.

        Raises:
            DamagedLedger: An entry is unreadable.
            LedgerUnavailable: The medium is.
        """


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of runs."""

    run: str
    entries: int
    opened_at: int
    #: The data of ``run.opened``.
    opened: dict[str, Json]
    closed_at: int | None = None
    #: The data of ``run.closed``; None while the run is open or was killed.
    closed: dict[str, Json] | None = None
    #: Why the run cannot be read; the other fields then say nothing.
    damage: str | None = None


class RunIndex(Protocol):
    """A ledger store that can say which runs it has."""

    def runs(self, *, prefix: str = "", limit: int | None = None) -> Iterator[RunSummary]:
        """Yield summaries by id, the last one first: ids sort by time, so that is the newest.

        Cost grows with the runs yielded, not with their length.
        """


class ProjectLedger(LedgerStore, RunIndex, Protocol):
    """A ledger store that is also its index."""
