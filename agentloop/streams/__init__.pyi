"""The public names, for type checkers."""

from agentloop.streams.bridges import as_aiter as as_aiter
from agentloop.streams.bridges import as_object_stream as as_object_stream
from agentloop.streams.bridges import from_aiostream as from_aiostream
from agentloop.streams.bridges import from_object_streams as from_object_streams
from agentloop.streams.bridges import to_aiostream as to_aiostream
from agentloop.streams.buffer import BufferSink as BufferSink
from agentloop.streams.buffer import BufferSource as BufferSource
from agentloop.streams.buffer import FrameBuffer as FrameBuffer
from agentloop.streams.combinators import chunks as chunks
from agentloop.streams.combinators import from_aiter as from_aiter
from agentloop.streams.combinators import merge as merge
from agentloop.streams.combinators import timeout as timeout
from agentloop.streams.combinators import zip as zip  # noqa: A004  (the name everybody looks for)
from agentloop.streams.duplex import BufferDuplex as BufferDuplex
from agentloop.streams.duplex import TurnDuplex as TurnDuplex
from agentloop.streams.duplex import TurnFunction as TurnFunction
from agentloop.streams.duplex import duplex_pair as duplex_pair
from agentloop.streams.duplex import turn_duplex as turn_duplex
from agentloop.streams.pipes import pipeline as pipeline
from agentloop.streams.pipes import tee as tee
from agentloop.streams.pump import PipeOwner as PipeOwner
from agentloop.streams.pump import source_owner as source_owner
from agentloop.streams.throughs import Through as Through
from agentloop.streams.throughs import filter_frames as filter_frames
from agentloop.streams.throughs import map_frames as map_frames
from agentloop.streams.throughs import only as only
from agentloop.streams.throughs import take as take

__all__: tuple[str, ...]
