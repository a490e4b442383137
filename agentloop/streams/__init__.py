"""Frame streams: buffers with two ends, pipes, throughs, combinators, duplexes, bridges.

Data and the end of data travel downstream; readiness and aborts travel upstream.
"""

from __future__ import annotations

from agentloop.streams.bridges import (
    as_aiter,
    as_object_stream,
    from_aiostream,
    from_object_streams,
    to_aiostream,
)
from agentloop.streams.buffer import BufferSink, BufferSource, FrameBuffer
from agentloop.streams.combinators import (
    chunks,
    from_aiter,
    merge,
    timeout,
    zip,  # noqa: A004  (the name everybody looks for)
)
from agentloop.streams.duplex import BufferDuplex, TurnDuplex, TurnFunction, duplex_pair, turn_duplex
from agentloop.streams.pipes import pipeline, tee
from agentloop.streams.pump import PipeOwner, source_owner
from agentloop.streams.throughs import Through, filter_frames, map_frames, only, take

__all__ = (
    "BufferDuplex",
    "BufferSink",
    "BufferSource",
    "FrameBuffer",
    "PipeOwner",
    "Through",
    "TurnDuplex",
    "TurnFunction",
    "as_aiter",
    "as_object_stream",
    "chunks",
    "duplex_pair",
    "filter_frames",
    "from_aiostream",
    "from_aiter",
    "from_object_streams",
    "map_frames",
    "merge",
    "only",
    "pipeline",
    "source_owner",
    "take",
    "tee",
    "timeout",
    "to_aiostream",
    "turn_duplex",
    "zip",
)
