"""Frame streams: buffers with two ends, pipes, throughs, combinators, duplexes, bridges.

Data and the end of data travel downstream; readiness and aborts travel upstream.
"""

from __future__ import annotations

from agentloop._lazy import on_first_use

#: Where each public name lives; `__init__.pyi` says the same to type checkers.
_HOMES = {
    "agentloop.streams.bridges": (
        "as_aiter",
        "as_object_stream",
        "from_aiostream",
        "from_object_streams",
        "to_aiostream",
    ),
    "agentloop.streams.buffer": (
        "BufferSink",
        "BufferSource",
        "FrameBuffer",
    ),
    "agentloop.streams.combinators": (
        "chunks",
        "from_aiter",
        "merge",
        "timeout",
        "zip",
    ),
    "agentloop.streams.duplex": (
        "BufferDuplex",
        "TurnDuplex",
        "TurnFunction",
        "duplex_pair",
        "turn_duplex",
    ),
    "agentloop.streams.pipes": (
        "pipeline",
        "tee",
    ),
    "agentloop.streams.pump": (
        "PipeOwner",
        "source_owner",
    ),
    "agentloop.streams.throughs": (
        "Through",
        "filter_frames",
        "map_frames",
        "only",
        "take",
    ),
}

__all__, __getattr__, __dir__ = on_first_use(__name__, _HOMES)
