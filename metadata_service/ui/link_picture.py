"""The links of a person as a picture: identifiers in columns from a root on, accepted links as a tree, refused ones dashed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from idgraph.model.identifiers import HASHED_PREFIX

WIDTH, HEIGHT, ROW, COLUMN = 112, 36, 46, 172
INDENT = 24
"""Pixels in an upright picture: one identifier per row, below and right of its parent."""
DEEPEST = 3
LABEL = 72
"""Pixels for what stands at a link."""
MOST_NODES = 60
"""If there are more, those at the ends of the tree are drawn as one for each type."""

LinkRow = Mapping[str, Any]
"""A link as the profile service shows it: `pair`, `evidence`, with `rule` or `decision`."""


class LinkNode(NamedTuple):
    """An identifier, or several of one type. `kind` are the words of `root`, `refused` and `sealed` that hold."""

    x: int
    y: int
    type: str
    value: str
    kind: str


class LinkLine(NamedTuple):
    """A link: a path of SVG, the middle of it, and what stands there."""

    path: str
    x: int
    y: int
    label: str
    is_refused: bool


class LinkPicture(NamedTuple):
    """All in pixels. `left_out` identifiers have no room."""

    width: int
    height: int
    nodes: list[LinkNode]
    lines: list[LinkLine]
    left_out: int


def link_picture(
    root: str,
    identifiers: Sequence[str],
    accepted: Iterable[LinkRow],
    refused: Iterable[LinkRow],
    is_upright: bool = False,
) -> LinkPicture:
    """`identifiers` are those of the person; the tree begins with `root`, if it is one of them. An upright picture fits beside
    a text, however deep the tree is."""
    tree = _Tree(root if root in identifiers else identifiers[0], identifiers, accepted, refused)
    tree.group()
    return tree.drawn(is_upright)


class _Tree:
    """Identifiers and their parents. There are several roots if links to hidden identifiers are missing."""

    def __init__(
        self, root: str, identifiers: Sequence[str], accepted: Iterable[LinkRow], refused: Iterable[LinkRow]
    ) -> None:
        self._root = root
        self._own = set(identifiers)
        self._labels: dict[tuple[str, str], str] = {}
        self._refused: set[tuple[str, str]] = set()
        self._crowd: Counter[str] = Counter()
        neighbours: dict[str, list[str]] = defaultdict(list)
        for link in accepted:
            one, other = link["pair"]
            neighbours[one].append(other)
            neighbours[other].append(one)
            self._labels[one, other] = self._labels[other, one] = _sources(link)
        self._below: dict[str, list[str]] = defaultdict(list)
        self._tops: list[str] = []
        seen: set[str] = set()
        for top in (root, *identifiers):
            if top in seen or top not in self._own:
                continue
            seen.add(top)
            self._tops.append(top)
            waiting = [top]
            while waiting:
                here = waiting.pop()
                fresh = [each for each in neighbours[here] if each not in seen]
                seen.update(fresh)
                self._below[here] += fresh
                waiting += fresh
        for link in refused:
            ends = sorted(link["pair"], key=lambda each: each not in self._own)
            self._labels[ends[0], ends[1]] = link["rule"].partition(":")[0]
            self._refused.add((ends[0], ends[1]))
            if ends[1] not in seen and ends[0] in seen:
                seen.add(ends[1])
                self._below[ends[0]].append(ends[1])
        self._count = len(seen)

    def group(self) -> None:
        """Draw identifiers that lead nowhere as one, by type, where there are too many."""
        if self._count <= MOST_NODES:
            return
        for here, below in list(self._below.items()):
            ends: dict[tuple[str, bool], list[str]] = defaultdict(list)
            for each in below:
                if not self._below.get(each):
                    ends[each.partition(":")[0], (here, each) in self._refused].append(each)
            for some in ends.values():
                if len(some) > 1:
                    self._crowd[some[0]] = len(some)
                    self._below[here] = [each for each in self._below[here] if each not in set(some[1:])]

    def drawn(self, is_upright: bool = False) -> LinkPicture:
        order: list[tuple[str, int]] = []
        waiting = [(each, 0) for each in reversed(self._tops)]
        while waiting:
            here, depth = waiting.pop()
            order.append((here, depth))
            waiting += [(each, depth + 1) for each in reversed(self._below[here])]
        order = order[:MOST_NODES]
        kept = {name for name, _ in order}
        rows: dict[str, float] = {}
        used = 0.0
        # From the ends back: who has others below stands in their middle.
        for here, _ in reversed(order):
            below = [rows[each] for each in self._below[here] if each in kept]
            rows[here] = sum(below) / len(below) if below else used
            used += not below
        places = {name: (depth * COLUMN + 1, int((used - 1 - rows[name]) * ROW) + 4) for name, depth in order}
        if is_upright:
            used = len(order)
            places = {
                name: (min(depth, DEEPEST) * INDENT + 1, row * ROW + 4)
                for row, (name, depth) in enumerate(order)
            }
        nodes = [self._node(name, *places[name]) for name, _ in order]
        drawn = [(here, each) for here, _ in order for each in self._below[here] if each in kept]
        drawn += sorted(each for each in self._refused.difference(drawn) if kept.issuperset(each))
        lines = [(self._bend if is_upright else self._line)(*each, places) for each in drawn]
        width = max(x for x, _ in places.values()) + WIDTH + (LABEL if is_upright else 0) + 2
        hidden = self._count - len(order) - sum(self._crowd[each] - 1 for each in kept if each in self._crowd)
        return LinkPicture(width, int(used * ROW) + 4, nodes, lines, hidden)

    def _node(self, name: str, x: int, y: int) -> LinkNode:
        kind, _, value = name.partition(":")
        look = "root" if name == self._root else "" if name in self._own else "refused"
        if name in self._crowd:
            value = f"{self._crowd[name]} of them"
        elif value.startswith(HASHED_PREFIX):
            value, look = value[:8], f"{look} sealed".strip()
        return LinkNode(x, y, kind, value, look)

    def _line(self, one: str, other: str, places: Mapping[str, tuple[int, int]]) -> LinkLine:
        (x, y), (to, end) = sorted((places[one], places[other]))
        is_beside = x == to
        x, to = x + WIDTH, to + (WIDTH if is_beside else 0)
        y, end = y + HEIGHT // 2, end + HEIGHT // 2
        half = x + 24 if is_beside else (x + to) // 2
        path = f"M{x} {y}C{half} {y} {half} {end} {to} {end}"
        label = self._labels.get((one, other), "")
        return LinkLine(path, half, (y + end) // 2, label, (one, other) in self._refused)

    def _bend(self, one: str, other: str, places: Mapping[str, tuple[int, int]]) -> LinkLine:
        """Down from one, then to the right; its label stands behind the other. Between two of a column it is drawn beside them."""
        (y, x), (end, to) = sorted((places[each][1], places[each][0]) for each in (one, other))
        label = self._labels.get((one, other), "")
        is_refused = (one, other) in self._refused
        if to > x:
            path = f"M{x + INDENT // 2} {y + HEIGHT}V{end + HEIGHT // 2}H{to}"
        else:
            edge = max(x, to) + WIDTH + 6
            path = f"M{x + WIDTH} {y + HEIGHT // 2}H{edge}V{end + HEIGHT // 2}H{to + WIDTH}"
        return LinkLine(path, to + WIDTH + LABEL // 2 + 4, end + HEIGHT // 2, label, is_refused)


def _sources(link: LinkRow) -> str:
    """The label of an accepted link."""
    if link.get("decision"):
        return "pinned"
    names = list(dict.fromkeys(each["source"] for each in link["evidence"]))
    return names[0][:9] if len(names) == 1 else f"{len(names)} sources"
