"""Numbers as bytes that sort as the numbers do: sign and bits of the double; where a double cannot hold every
integer, how far the integer is from it; beyond all doubles, as infinite, BEYOND and the SHA-256 of the number."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

from sinks.index_values import exact, ordered

BEYOND = b"\x00"
AFTER_BEYOND = b"\x01"

_pack = struct.Struct(">d").pack
_unpack = struct.Struct(">Q").unpack
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_EXACT = 2.0**53
_PLAIN = frozenset({int, float})


def number_key(value: Any) -> bytes | None:
    """Equal for equal numbers, exact for integers and beyond a double's range. None for NaN."""
    if type(value) in _PLAIN and -_EXACT < value < _EXACT:
        return bytes.fromhex(plain_key(value))
    key = number_order(value)
    if key not in INFINITE or value in (math.inf, -math.inf):
        return key
    whole = exact(value)
    digits = f"{whole:x}" if isinstance(whole, int) else f"{whole:f}".rstrip("0")
    return key + BEYOND + hashlib.sha256(digits.encode()).digest()


def plain_key(value: float) -> str:
    """The key, in hexadecimal, of a number of which every integer is a double."""
    (bits,) = _unpack(_pack(value + 0.0))
    return f"01{bits:016x}" if bits < _SIGN else f"00{bits ^ _ALL:016x}"


def number_order(value: Any) -> bytes | None:
    """As much of the key as is in order: sorts as numbers do, within a double's range. None for NaN."""
    number = ordered(value)
    if number is None:
        return None
    nearest = number + 0.0  # also turns -0.0 into 0.0
    key = _positive(nearest) if nearest >= 0 else _negative(nearest)
    if -_EXACT < nearest < _EXACT or math.isinf(nearest):
        return key
    # The offset has the same number of digits for all that share the double, so it sorts behind it.
    step = int(math.ulp(nearest))
    return b"%b%0*x" % (key, len(f"{2 * step:x}"), int(number) - int(nearest) + step)


def _positive(number: float) -> bytes:
    return b"\1" + _pack(number)


def _negative(number: float) -> bytes:
    # The larger a negative number's bits, the smaller it is.
    return b"\0" + (int.from_bytes(_pack(number), "big") ^ _ALL).to_bytes(8, "big")


INFINITE = frozenset({_positive(math.inf), _negative(-math.inf)})
"""The beginning of the keys of numbers that are too large for a double."""
