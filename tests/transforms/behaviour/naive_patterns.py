"""Row patterns as the standard describes them: all ways to match, the preferred one first, without a thought of speed.

A pattern is nested tuples, which `written` gives as text: `("variable", name)`, `("^",)`, `("$",)`, `("all", parts)`,
`("any", parts)`, `("times", part, least, most, is_greedy)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from idgraph.model.timelines import Entry

Node = tuple[Any, ...]
Path = tuple[str, ...]
"""The variables of the rows so far."""
Condition = Callable[[Sequence[Entry], int, Mapping[str, Sequence[Entry]]], bool]
"""Of the rows, the place of the one at hand, and the entries by variable, that one included."""


class TooManyWaysError(Exception):
    """The pattern has more ways than a test has time for."""


def written(node: Node) -> str:
    """The pattern's text."""
    kind = node[0]
    if kind in "^$":
        return str(kind)
    if kind == "variable":
        return str(node[1])
    if kind == "times":
        _, part, least, most, is_greedy = node
        bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
        bounds = bounds or (
            f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
        )
        return f"({written(part)}){bounds}{'' if is_greedy else '?'}"
    separator = " " if kind == "all" else " | "
    return "(" + separator.join(map(written, node[1])) + ")"


def has_end(node: Node) -> bool:
    """Whether there is a `$` in the pattern."""
    return node[0] == "$" or "$" in written(node)


class Naive:
    """One evaluation over rows, at a moment."""

    def __init__(
        self,
        rows: Sequence[Entry],
        conditions: Mapping[str, Condition],
        within: int | None,
        wait: int,
        now: int,
    ) -> None:
        self.rows = rows
        self._conditions = conditions
        self._within = within
        self._wait = wait
        self._now = now
        self._left = 30_000

    def matches(self, node: Node, skip: str) -> list[tuple[int, Path]]:
        """Place of the first row and variables of each match, without the empty ones."""
        found = []
        begin = 0
        while begin < len(self.rows):
            path = next((path for _, path in self._ways(node, begin, begin, ())), None)
            if not path:
                begin += 1
                continue
            found.append((begin, path))
            begin += self._skipped(skip, path)
        return found

    @staticmethod
    def _skipped(skip: str, path: Path) -> int:
        if skip == "past_last_row":
            return len(path)
        if skip == "to_next_row":
            return 1
        where, variable = skip.split()
        places = [at for at, each in enumerate(path) if each == variable]
        return max(min(places) if where == "to_first" else max(places), 1) if places else 1

    def _ways(self, node: Node, begin: int, place: int, path: Path) -> Iterator[tuple[int, Path]]:
        self._left -= 1
        if self._left < 0:
            raise TooManyWaysError
        kind = node[0]
        if kind == "variable":
            if place < len(self.rows) and self._holds(node[1], begin, place, path):
                yield place + 1, (*path, node[1])
        elif kind == "^":
            if place == 0:
                yield place, path
        elif kind == "$":
            if self._is_quiet(place):
                yield place, path
        elif kind == "any":
            for part in node[1]:
                yield from self._ways(part, begin, place, path)
        elif kind == "all":
            yield from self._in_turn(node[1], begin, place, path)
        else:
            yield from self._rounds(node, begin, place, path, 0)

    def _in_turn(
        self, parts: Sequence[Node], begin: int, place: int, path: Path
    ) -> Iterator[tuple[int, Path]]:
        if not parts:
            yield place, path
            return
        for after, longer in self._ways(parts[0], begin, place, path):
            yield from self._in_turn(parts[1:], begin, after, longer)

    def _rounds(
        self, node: Node, begin: int, place: int, path: Path, done: int
    ) -> Iterator[tuple[int, Path]]:
        _, part, least, most, is_greedy = node
        if done >= least and not is_greedy:
            yield place, path
        if most is None or done < most:
            for after, longer in self._ways(part, begin, place, path):
                if after == place and done >= least:
                    yield after, longer  # a round without a row is the last one
                else:
                    yield from self._rounds(node, begin, after, longer, done + 1)
        if done >= least and is_greedy:
            yield place, path

    def _holds(self, variable: str, begin: int, place: int, path: Path) -> bool:
        if self._within is not None and self.rows[place].time - self.rows[begin].time > self._within:
            return False
        if variable not in self._conditions:
            return True
        taken: dict[str, list[Entry]] = {}
        for at, each in enumerate((*path, variable)):
            taken.setdefault(each, []).append(self.rows[begin + at])
        return self._conditions[variable](self.rows, place, taken)

    def _is_quiet(self, place: int) -> bool:
        if place == len(self.rows):
            return self.rows[-1].time + self._wait <= self._now
        return bool(self._wait and place and self.rows[place].time - self.rows[place - 1].time >= self._wait)


def _last(name: str, taken: Mapping[str, Sequence[Entry]]) -> Any:
    return taken[name][-1].fields["v"] if name in taken else None


def _more(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one > other


CONDITIONS: dict[str, Condition] = {
    "c == 'a'": lambda rows, at, _: rows[at].fields["c"] == "a",
    "c == 'b'": lambda rows, at, _: rows[at].fields["c"] == "b",
    "v > previous.v": lambda rows, at, _: at > 0 and rows[at].fields["v"] > rows[at - 1].fields["v"],
    "v > A.v": lambda rows, at, taken: _more(rows[at].fields["v"], _last("A", taken)),
    "v == B.v": lambda rows, at, taken: rows[at].fields["v"] == _last("B", taken),
    "v >= first.A.v": lambda rows, at, taken: (
        "A" in taken and rows[at].fields["v"] >= taken["A"][0].fields["v"]
    ),
}
VARIABLES = st.sampled_from("ABC").map(lambda name: ("variable", name))


def _larger(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, None), (0, 2), (1, 2), (2, 2), (0, 0)])
    return st.one_of(
        some.map(lambda each: ("all", each)),
        some.map(lambda each: ("any", each)),
        st.builds(
            lambda part, low_high, greedy: ("times", part, *low_high, greedy), parts, bounds, st.booleans()
        ),
    )


NODES: st.SearchStrategy[Node] = st.recursive(
    st.one_of(VARIABLES, VARIABLES, VARIABLES, st.sampled_from([("^",), ("$",), ("all", ())])),
    _larger,
    max_leaves=6,
).map(lambda node: ("all", (node, ("times", ("variable", "A"), 0, 1, False))))
"""Patterns, each with a reluctant `A?` at its end so that it has a variable."""


@st.composite
def rows(draw: st.DrawFn) -> list[Entry]:
    """Up to seven entries, up to three seconds apart."""
    drawn = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=7
        )
    )
    time, made = 0, []
    for number, (gap, letter, value) in enumerate(drawn):
        time += gap * 1000
        made.append(Entry(time, "s", f"{number}", (1, "x", 1), {"c": letter, "v": value}))
    return made
