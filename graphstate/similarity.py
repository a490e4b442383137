"""How near two vectors are, and the bytes that hold one.

A vector is kept as little-endian 32-bit floats. Nearness is computed from these with 64-bit
floats and rounded, so that every way of computing it gives the same number.
"""

from __future__ import annotations

import math
import sys
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from operator import mul

__all__ = (
    "LARGEST", "NOTHING", "cosine", "euclidean", "from_text", "norm", "packed", "rounded", "same_length", "to_text",
    "unpacked",
)  # fmt: skip

#: The largest number a vector can hold.
LARGEST = 3.4028234663852886e38

#: A cosine nearer to zero than this is zero: a sum of 32-bit products cannot tell it from noise.
NOTHING = 1e-4

_DIGITS = 12


def packed(vector: Iterable[float]) -> bytes:
    """Return the bytes of a vector; its numbers must be within `LARGEST`."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def unpacked(data: bytes) -> tuple[float, ...]:
    """Return the numbers of a vector, each what its 32 bits hold."""
    numbers = array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)


def to_text(data: bytes) -> str:
    """Return the bytes of a vector as base64, as they stand in the log."""
    return b2a_base64(data, newline=False).decode()


def from_text(text: str) -> bytes:
    """Return the bytes that a text of the log holds.

    Raises:
        ValueError: It is not base64 of whole 32-bit floats.
    """
    data = a2b_base64(text, strict_mode=True)
    if len(data) % 4 or not data:
        raise ValueError(f"{len(data)} bytes are no vector of 32-bit floats")
    return data


def rounded(cosine: float) -> float:
    """Return a computed cosine as it is told and compared."""
    return 0.0 if abs(cosine) < NOTHING else round(min(1.0, max(-1.0, cosine)), _DIGITS)


def norm(vector: Iterable[float]) -> float:
    """Return the length of a vector."""
    return math.sqrt(math.fsum(x * x for x in vector))


def cosine(a: Sequence[float], b: Sequence[float], *, norms: float | None = None) -> float:
    """Return the cosine of two vectors, from -1 to 1; 0 if either has no length.

    Args:
        norms: The product of both lengths, if it is known.

    Raises:
        ValueError: They do not have the same number of dimensions.
    """
    same_length(a, b)
    both = norm(a) * norm(b) if norms is None else norms
    return rounded(math.fsum(map(mul, a, b)) / both) if both else 0.0


def euclidean(a: Sequence[float], b: Sequence[float]) -> float:
    """Return 1 / (1 + distance), from above 0 to 1.

    Raises:
        ValueError: They do not have the same number of dimensions.
    """
    same_length(a, b)
    return 1 / (1 + math.dist(a, b))


def same_length(a: Sequence[float], b: Sequence[float]) -> None:
    """Raise ValueError unless two vectors have the same number of dimensions."""
    if len(a) != len(b):
        raise ValueError(f"a vector of {len(a)} dimensions cannot be compared with one of {len(b)}")
