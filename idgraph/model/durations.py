"""Lengths of time as people write them: `90s`, `5m`, `12h`, `30d`, `2w`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_FORM = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
LONGEST_MS = 100 * 366 * 86_400_000


def milliseconds(text: str) -> int:
    """The length of a duration. Raises ValueError for another text, and beyond a hundred years."""
    found = _FORM.fullmatch(text)
    length = int(found[1]) * _UNITS_MS[found[2]] if found else 0
    if not 0 < length <= LONGEST_MS:
        raise ValueError(
            "a duration is a number and one of s, m, h, d, w, as in 30d; at most a hundred years"
        )
    return length


def _checked(text: str) -> str:
    milliseconds(text)
    return text


Duration = Annotated[str, AfterValidator(_checked)]
