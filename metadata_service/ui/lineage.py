"""The lineage of an attribute as a picture: boxes in columns, and the lines between them."""

from __future__ import annotations

from typing import NamedTuple

from metadata_service.attributes.lineage import LineageRecord

WIDTH, HEIGHT, ROW, COLUMN = 150, 36, 46, 186
MOST_ROWS = 12
"""Of a column; the list beside the picture has all."""


class Box(NamedTuple):
    """A rectangle with two lines of text, and the page that it leads to."""

    x: int
    y: int
    title: str
    note: str
    url: str | None


class Picture(NamedTuple):
    """All in pixels; `lines` are paths of SVG."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[str]


def picture(found: LineageRecord, path: str) -> Picture:
    """Sources, specs, the attribute, its readers: from left to right."""
    writers, readers = found.writers[:MOST_ROWS], found.readers[:MOST_ROWS]
    sources = sorted({each.source for each in writers})
    rows = max(len(writers), len(readers), 1)
    height = rows * ROW
    columns: list[list[tuple[str, str, str | None]]] = [
        [(each, "source", None) for each in sources],
        [(f"{each.spec}@{each.version}", each.event_type, f"/ui/specs/{each.spec}") for each in writers],
        [(path, "this attribute", None)],
        [
            (each.name, each.kind, None if each.kind == "namespace" else f"/ui/{each.kind}s/{each.name}")
            for each in readers
        ],
    ]
    placed: list[list[Box]] = []
    for number, column in enumerate(columns):
        top = (height - len(column) * ROW) // 2 + (ROW - HEIGHT) // 2
        placed.append([Box(number * COLUMN + 1, top + row * ROW, *each) for row, each in enumerate(column)])
    middle = placed[2][0]
    lines = [
        _line(placed[0][sources.index(each.source)], box)
        for each, box in zip(writers, placed[1], strict=True)
    ]
    lines += [_line(box, middle) for box in placed[1]] + [_line(middle, box) for box in placed[3]]
    return Picture(3 * COLUMN + WIDTH + 2, height, [box for column in placed for box in column], lines)


def _line(left: Box, right: Box) -> str:
    x, y = left.x + WIDTH, left.y + HEIGHT // 2
    to, end = right.x, right.y + HEIGHT // 2
    half = (x + to) // 2
    return f"M{x} {y}C{half} {y} {half} {end} {to} {end}"
