"""A small chart of one figure over time, as the coordinates of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

WIDTH, HEIGHT, EDGE = 240, 44, 2
LONGEST_GAP = 2.5
"""Of the usual distance between two moments; beyond it nothing was reported, and the line is broken."""


class Chart(NamedTuple):
    """`line` and `area` are paths within `width` by `height`; the figure goes from 0 to `most`."""

    line: str
    area: str
    width: int
    height: int
    least: float
    most: float
    minutes: int


def chart(moments: Sequence[int], values: Sequence[float | None]) -> Chart | None:
    """Of values at moments in epoch milliseconds, the oldest first; None where there are not two."""
    known = [(at, value) for at, value in zip(moments, values, strict=True) if value is not None]
    if len(known) < 2:
        return None
    first, last = known[0][0], known[-1][0]
    most = max(value for _, value in known)
    usual = min(after[0] - before[0] for before, after in pairwise(known)) or 1

    def place(at: int, value: float) -> tuple[float, float]:
        along = (at - first) / max(1, last - first)
        up = value / most if most else 0.0
        return round(along * WIDTH, 1), round(HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE), 1)

    parts: list[list[tuple[float, float]]] = [[]]
    before = first
    for at, value in known:
        if at - before > LONGEST_GAP * usual:
            parts.append([])
        parts[-1].append(place(at, value))
        before = at
    lines = ["M" + " L".join(f"{x} {y}" for x, y in part) for part in parts]
    areas = [
        f"{line} L{part[-1][0]} {HEIGHT} L{part[0][0]} {HEIGHT}Z"
        for line, part in zip(lines, parts, strict=True)
    ]
    least = min(value for _, value in known)
    minutes = max(1, round((last - first) / 60_000))
    return Chart(" ".join(lines), " ".join(areas), WIDTH, HEIGHT, least, most, minutes)
