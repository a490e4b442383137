"""Frame streams: buffers with two ends, pipes, throughs, combinators, duplexes, bridges."""

from __future__ import annotations

from agentloop.streams.buffer import BufferSink, BufferSource, FrameBuffer
from agentloop.streams.duplex import BufferDuplex, duplex_pair
from agentloop.streams.pump import PipeOwner, source_owner

__all__ = (
    "BufferDuplex",
    "BufferSink",
    "BufferSource",
    "FrameBuffer",
    "PipeOwner",
    "duplex_pair",
    "source_owner",
)
