"""The text of a row pattern, as SQL's PATTERN clause has it, to a tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from idgraph.model.errors import SpecError

DEEPEST = 64
"""Parentheses within parentheses."""
LARGEST_BOUND = 10_000
"""Most repetitions of a quantifier."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One entry that its condition holds for."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^`, the begin of the entries, or `$`, their end."""

    sign: str
    offset: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other; without parts it is `()`."""

    parts: tuple[Node, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, the preferred one first."""

    parts: tuple[Node, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """A part from `least` to `most` times, None: without end. Greedy prefers more, reluctant less."""

    part: Node
    least: int
    most: int | None
    greedy: bool
    offset: int


Node: TypeAlias = Variable | Anchor | Sequence | Choice | Repetition

_TOKEN = re.compile(r"\s*(?:([A-Za-z][A-Za-z0-9_]*)|(\{\s*(\d*)\s*(,?)\s*(\d*)\s*\})|(.))", re.DOTALL)
_BOUNDS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_HINTS = {
    "{": "a quantifier is {n}, {n,}, {n,m} or {,m}; a part cannot be excluded with {- -}",
    '"': "a variable has letters, digits and _, without quotes",
    ",": "entries that follow each other stand without a comma",
    "&": "a condition of two variables is one variable whose condition has both",
}


def parse(text: str) -> Node:
    """Raises SpecError without a pointer, with the offset in the text."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        if not self._text.strip():
            self._fail("expected a row pattern, found empty text", 0)
        node = self._choice()
        if self._peek() is not None:
            self._fail_here()
        return node

    def _peek(self) -> re.Match[str] | None:
        found = _TOKEN.match(self._text, self._at)
        return found if found and self._text[self._at : found.end()].strip() else None

    def _sign(self) -> str:
        found = self._peek()
        return (found[6] or "") if found else ""

    def _take(self) -> int:
        """Goes past a token, whose offset it gives."""
        found = self._peek()
        if found is None:
            self._fail_here()
        self._at = found.end()
        return found.start(found.lastindex or 0)

    def _choice(self) -> Node:
        offset = self._at
        parts = [self._sequence()]
        while self._sign() == "|":
            self._take()
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts), offset)

    def _sequence(self) -> Node:
        offset = self._at
        parts: list[Node] = []
        while (found := self._peek()) is not None and (found[6] or "") not in {"|", ")"}:
            parts.append(self._quantified())
        if not parts:
            self._fail_here("()" if self._sign() in {"|", ")", ""} else None)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts), offset)

    def _quantified(self) -> Node:
        part = self._primary()
        found = self._peek()
        if found is None or (found[2] is None and found[6] not in _BOUNDS):
            return part
        offset = self._take()
        least, most = self._bounds(found, offset)
        greedy = self._sign() != "?"
        if not greedy:
            self._take()
        after = self._peek()
        if after is not None and (after[2] is not None or after[6] in _BOUNDS):
            self._fail("a part has one quantifier", self._take(), "parentheses make one part of it: (A+)*")
        return Repetition(part, least, most, greedy, offset)

    def _bounds(self, found: re.Match[str], offset: int) -> tuple[int, int | None]:
        if found[6]:
            return _BOUNDS[found[6]]
        low, comma, high = found[3], found[4], found[5]
        if not comma and not low:
            self._fail("a quantifier needs a number", offset, _HINTS["{"])
        if max(len(low), len(high)) > len(str(LARGEST_BOUND)) or int(low or 0) > LARGEST_BOUND:
            self._fail(f"a quantifier has at most {LARGEST_BOUND}", offset)
        least = int(low or 0)
        if not comma:
            return least, least
        most = int(high) if high else None
        if most is not None and most > LARGEST_BOUND:
            self._fail(f"a quantifier has at most {LARGEST_BOUND}", offset)
        if most is not None and most < least:
            self._fail(f"a quantifier cannot end at {most} and begin at {least}", offset)
        return least, most

    def _primary(self) -> Node:
        found = self._peek()
        if found is not None and found[1]:
            name, offset = found[1], self._take()
            if name.upper() == "PERMUTE" and self._sign() == "(":
                self._fail("there is no PERMUTE", offset, "write the orders: (A B | B A)")
            return Variable(name, offset)
        sign = self._sign()
        if sign in {"^", "$"}:
            return Anchor(sign, self._take())
        if sign != "(":
            self._fail_here()
        return self._group()

    def _group(self) -> Node:
        offset = self._take()
        if self._sign() == ")":
            self._take()
            return Sequence((), offset)
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"parentheses are nested deeper than {DEEPEST}", offset)
        node = self._choice()
        if self._sign() != ")":
            self._fail("the '(' is not closed", offset)
        self._take()
        self._depth -= 1
        return node

    def _fail_here(self, instead: str | None = None) -> NoReturn:
        found = self._peek()
        hint = f"a part that takes no entry is {instead}" if instead else None
        if found is None:
            self._fail("expected a variable or '(', found the end", len(self._text), hint)
        shown = found[0].strip()
        offset = found.end() - len(shown)
        message = f"'{shown}' cannot stand here" if len(shown) <= 20 else f"'{shown[:20]}…' cannot stand here"
        self._fail(message, offset, hint or _HINTS.get(shown[:1]))

    def _fail(self, message: str, offset: int, hint: str | None = None) -> NoReturn:
        where = f"character {offset + 1}: " if offset < len(self._text) else ""
        raise SpecError(
            f"row pattern, {where}{message}" if where else f"row pattern: {message}", "", hint, offset
        )
