"""Splitting text as Java's `String.split` does, in bounded time.

Java reads a separator as a regular expression. Plain ones, and single escaped characters, are split as text.

Python's own engine backtracks: twenty `a?` take it a million steps for a text of twenty letters. It is used for
patterns without repetition, or with one at their end, which cannot backtrack. All others are searched by keeping all
ways to a match side by side, each position of the pattern at most once, the preferred ways first.

The next search starts where a match ended, and may read characters again: of ` +,| ` in a text of spaces each match
takes one space, after the search for a comma has come to the end. So all matches together can take time quadratic in
the text, and a character is charged each time it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import check_length, limits_at_hand, pay

LONGEST_PATTERN = 500
_MOST_STEPS = 1_000
_PLACES_A_STEP = 4
_QUICK_CHARACTERS_A_STEP = 16
_WIDTH_A_STEP = 64
_LINE_END = r"\n\r\u0085\u2028\u2029"
_AS_JAVA = {".": f"[^{_LINE_END}]", "$": rf"(?=\r\n\Z|(?!(?<=\r)\n)[{_LINE_END}]?\Z)"}
"""Tokens with another meaning in Java: more characters end a line, and `$` stands before the last one of them too."""
_TOKEN = re.compile(
    r"(?P<atom>\\[^0-9A-Za-z]|\\[dDsSwWtnrf]|\[\^?(?:\\.|[^\]\\\[&])+\]|[^\\()\[{|*+?^$])"
    r"|(?P<assertion>\\[bB]|[\^$])|(?P<bar>\|)"
)
_REPEAT = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?P<least>\d{1,3})(?P<comma>,(?P<most>\d{0,3}))?\})(?P<lazy>\??)(?P<held>\+?)"
)


class Step(NamedTuple):
    """One step of a search: a test of the next character (`holds`), a look at a place (`look`), a choice of the steps
    `to`, the preferred one first, or the end of a match (none of these)."""

    holds: Callable[[str], bool] | None = None
    look: re.Pattern[str] | None = None
    to: tuple[int, ...] = ()


class Pattern(NamedTuple):
    """`steps` is empty if Python's engine can search it without going back: then it reads `width` characters at most at
    each place of a text."""

    quick: re.Pattern[str]
    steps: tuple[Step, ...]
    width: int

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the pattern matches, from left to right. Raises TransformError if that takes too many steps."""
        if self.steps:
            return _spans(self.steps, text)
        pay(len(text) * (1 + self.width // _WIDTH_A_STEP) // _QUICK_CHARACTERS_A_STEP)
        return (found.span() for found in self.quick.finditer(text))


class _Part(NamedTuple):
    step: Step
    least: int = 1
    most: int | None = 1
    lazy: bool = False

    @property
    def varies(self) -> bool:
        return self.least != self.most


@lru_cache(maxsize=256)
def read_pattern(text: str) -> Pattern:
    """Raises SpecError for a pattern that is not supported: groups, look-around, references, and repetitions that never
    give back."""
    if len(text) > LONGEST_PATTERN:
        raise SpecError(f"a separator is a pattern longer than {LONGEST_PATTERN} characters")
    ways = _read(text)
    try:
        quick = re.compile(_TOKEN.sub(_in_python, text), re.ASCII)
    except re.error:
        raise SpecError("a separator is no valid pattern") from None
    width = max(len(text), sum(part.least for way in ways for part in way))
    return Pattern(quick, () if _is_simple(ways) else _steps(ways), width)


def _is_simple(ways: list[list[_Part]]) -> bool:
    """Whether no search goes back in the text, and Python and Java mean the same by it: after an empty match Java looks
    for no other one at its place."""
    varying = [part for way in ways for part in way if part.varies]
    if len(ways) > 1:
        return not varying and all(any(part.step.holds for part in way) for way in ways)
    return not varying or (varying == [ways[0][-1]] and not varying[0].lazy)


def _read(text: str) -> list[list[_Part]]:
    """The alternatives of a pattern, each with its parts in their order."""
    ways: list[list[_Part]] = [[]]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise SpecError(
                "a separator is a pattern that is not supported; it takes no groups and no look-around"
            )
        at = token.end()
        if token["bar"]:
            ways.append([])
        elif token["assertion"]:
            ways[-1].append(_Part(Step(look=re.compile(_in_python(token), re.ASCII))))
        else:
            repeat = _REPEAT.match(text, at)
            at = repeat.end() if repeat else at
            ways[-1].append(_repeated(_tested(_in_python(token)), repeat))
    return ways


def _in_python(token: re.Match[str]) -> str:
    return _AS_JAVA.get(token[0], token[0])


def _tested(atom: str) -> Step:
    try:
        matches = re.compile(atom, re.ASCII).fullmatch
    except re.error:
        raise SpecError("a separator is no valid pattern") from None
    return Step(holds=lru_cache(maxsize=256)(lambda character: matches(character) is not None))


def _repeated(step: Step, repeat: re.Match[str] | None) -> _Part:
    if repeat is None:
        return _Part(step)
    if repeat["held"]:
        raise SpecError("a separator is a pattern that is not supported; no '+' can follow a repetition")
    lazy = bool(repeat["lazy"])
    if repeat["sign"]:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat["sign"]]
        return _Part(step, least, most, lazy)
    least = int(repeat["least"])
    most = least if not repeat["comma"] else int(repeat["most"]) if repeat["most"] else None
    return _Part(step, least, most, lazy)


def _steps(ways: list[list[_Part]]) -> tuple[Step, ...]:
    if sum((part.most or part.least + 1) * 2 for way in ways for part in way) > _MOST_STEPS:
        raise SpecError("a separator is a pattern that repeats too much")
    starts: list[int] = []
    steps: list[Step] = [Step()]
    for way in ways:
        starts.append(len(steps))
        for part in way:
            _add(steps, part)
        steps.append(Step())
    steps[0] = Step(to=tuple(starts))
    return tuple(steps)


def _add(steps: list[Step], part: _Part) -> None:
    """Each step leads to the one after it; only choices say where they lead."""

    def choice(into: int, past: int) -> Step:
        return Step(to=(past, into) if part.lazy else (into, past))

    steps += [part.step] * part.least
    here = len(steps)
    if part.most is None:
        steps += [choice(here + 1, here + 3), part.step, Step(to=(here,))]
        return
    end = here + 2 * (part.most - part.least)
    for into in range(here + 1, end, 2):
        steps += [choice(into, end), part.step]


def _spans(steps: tuple[Step, ...], text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start <= len(text):
        found = _search(steps, text, start)
        if found is None:
            return
        yield found
        start = found[1] if found[1] > found[0] else found[1] + 1


def _search(steps: tuple[Step, ...], text: str, start: int) -> tuple[int, int] | None:
    """The leftmost match from `start` on, of those the preferred one. Raises TransformError if it takes too many steps."""
    found: tuple[int, int] | None = None
    ways: list[tuple[int, int]] = []
    """Where each way began and which step is its next."""
    for at in range(start, len(text) + 1):
        if found is None:
            ways.append((at, 0))
        elif not ways:
            break
        following: list[tuple[int, int]] = []
        seen: set[int] = set()
        for began, place in _reached(steps, text, at, ways, seen):
            holds = steps[place].holds
            if holds is None:
                found = began, at
                break
            if at < len(text) and holds(text[at]):
                following.append((began, place + 1))
        pay(1 + len(seen) // _PLACES_A_STEP)
        ways = following
    return found


def _reached(
    steps: tuple[Step, ...], text: str, at: int, ways: list[tuple[int, int]], seen: set[int]
) -> Iterator[tuple[int, int]]:
    """The tests and ends that ways come to without a further character, the preferred ones first; `seen` takes up the
    places on the way to them."""
    for began, first in ways:
        waiting = [first]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            step = steps[place]
            if step.to:
                waiting += reversed(step.to)
            elif step.look is None:
                yield began, place
            elif step.look.match(text, at):
                waiting.append(place + 1)


_META = frozenset(".$|()[{^?*+\\")
_STEPS_A_CHARACTER = 4


def split(separator: str, text: str) -> list[str]:
    """The parts of `text`; empty ones at the end are dropped. Raises TransformError for a separator or a
    text out of bounds."""
    check_length(len(text))
    limits = limits_at_hand()
    plain = plain_separator(separator)
    if plain is not None:
        parts = text.split(plain, limits.max_nodes) if plain else list(text) or [""]
    else:
        if len(text) > limits.max_pattern_text:
            raise TransformError("a text is too long to be split by a pattern")
        parts = _split_by(separator, text)
    if len(parts) > limits.max_nodes:
        raise TransformError(f"a text splits into more than {limits.max_nodes} parts")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    # Java gives no part at all for a text that is separators only, but the text itself if there is none.
    return [] if parts == [""] and text else parts


@lru_cache(maxsize=256)
def plain_separator(separator: str) -> str | None:
    """The text that a separator stands for, if it is no pattern."""
    if _META.isdisjoint(separator):
        return separator
    if len(separator) == 2 and separator[0] == "\\" and not separator[1].isalnum():
        return separator[1]
    return None


def check_separator(separator: Any) -> None:
    """Raises SpecError for a constant that can separate no text."""
    if type(separator) is str and plain_separator(separator) is None:
        read_pattern(separator)


def _split_by(separator: str, text: str) -> list[str]:
    # A pattern that is known already costs as much as a new one: the same event must end the same.
    pay(_STEPS_A_CHARACTER * len(separator))
    try:
        pattern = read_pattern(separator)
    except SpecError as error:
        raise TransformError(error.message) from None
    parts: list[str] = []
    start = 0
    for begin, end in pattern.spans(text):
        if end == 0 or begin == end == len(text):
            continue
        parts.append(text[start:begin])
        start = end
    parts.append(text[start:])
    return parts
