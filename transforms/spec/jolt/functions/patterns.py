r"""Splitting text as Java's `String.split` does, in bounded time.

Java reads a separator as a regular expression. Plain ones, and single escaped characters, are split as text. Python's own
engine backtracks: twenty `a?` take it a million steps for a text of twenty letters. It is used for patterns without
repetition, or with one at their end, which cannot backtrack. RE2 searches all others, in time linear in text and pattern,
but takes several times longer per match.

The next search starts where a match ended, and may read characters again: of ` +,| ` in a text of spaces each match
takes one space, after the search for a comma has come to the end. So all matches together can take time quadratic in
the text, and each search is charged for all that it may have read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, AnyStr, NamedTuple

import re2

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import check_length, limits_at_hand, pay

LONGEST_PATTERN = 500
_MOST_REPETITIONS = 500
_MEMORY_BYTES = 2 << 20
_FEW_INSTRUCTIONS = 20
"""RE2's memory has room for all states of so small a pattern: each byte takes one look-up, as long as _LOOK_UP_CHECKS. In a
larger one, each byte can take a check of each instruction."""
_LOOK_UP_CHECKS = 4
_CHECKS_A_STEP = 160
_INSTRUCTIONS_A_STEP = 4
_CHARACTER_BYTES = 4
_UNBOUNDED = 1 << 30
_QUICK_CHARACTERS_A_STEP = 16
_WIDTH_A_STEP = 64
_LINE_END = r"\n\r\u0085\u2028\u2029"
_AS_JAVA = {".": f"[^{_LINE_END}]", "$": rf"(?=\r\n\Z|(?!(?<=\r)\n)[{_LINE_END}]?\Z)"}
"""Tokens with another meaning in Java: more characters end a line, and `$` stands before the last one of them too."""
_IN_RE2 = {".": r"[^\n\r\x{85}\x{2028}\x{2029}]", r"\s": "[[:space:]]", r"\S": "[[:^space:]]", "^": r"\A"}
_ENDS = r"(?:[\n\r\x{85}\x{2028}\x{2029}]?\z)", r"(?:(?:\r\n)?\z)"
"""The text before which `$` matches in RE2, which has no look-ahead: in most texts, and in those that end with
carriage return, line feed."""
_TOKEN = re.compile(
    r"(?P<atom>\\[^0-9A-Za-z]|\\[dDsSwWtnrf]|\[\^?(?:\\.|[^\]\\\[&])+\]|[^\\()\[{|*+?^$])"
    r"|(?P<assertion>\\[bB]|[\^$])|(?P<bar>\|)"
)
_REPEAT = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?P<least>\d{1,3})(?P<comma>,(?P<most>\d{0,3}))?\})(?P<lazy>\??)(?P<held>\+?)"
)
_IN_CLASS = re.compile(r"\\u[0-9A-Fa-f]{4}|\\.|.", re.DOTALL)


class _Part(NamedTuple):
    """A character or an assertion, with how often it stands there."""

    token: str
    is_character: bool
    repeat: str = ""
    least: int = 1
    most: int | None = 1

    @property
    def varies(self) -> bool:
        return self.least != self.most


_END = _Part("$", is_character=False)


class _Quick(NamedTuple):
    """A pattern for Python's engine, which reads `width` characters at most at each offset."""

    pattern: re.Pattern[str]
    width: int

    def split(self, text: str) -> list[str]:
        pay(len(text) * (1 + self.width // _WIDTH_A_STEP) // _QUICK_CHARACTERS_A_STEP)
        return _between(text, (found.span() for found in self.pattern.finditer(text)))


class _Linear(NamedTuple):
    """A pattern for RE2, and the one for texts that end with carriage return and line feed. Matches have `most_bytes`."""

    pattern: Any
    before_line_feed: Any
    most_bytes: int

    def split(self, text: str) -> list[str]:
        encoded = text.encode("utf-8", "surrogatepass")
        return [part.decode("utf-8", "surrogatepass") for part in _between(encoded, self._spans(encoded))]

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        pattern = self.before_line_feed if text.endswith(b"\r\n") else self.pattern
        size = pattern.programsize
        pay(size // _INSTRUCTIONS_A_STEP)
        checks = size if size > _FEW_INSTRUCTIONS else _LOOK_UP_CHECKS
        start = 0
        while start <= len(text):
            found = pattern.search(text, start)
            # A group leaves out what `$` looks at.
            begin, end = (found.start(), found.end(found.lastindex or 0)) if found else (len(text), len(text))
            read = min(len(text) - start, end - start + self.most_bytes)
            pay(1 + read * checks // _CHECKS_A_STEP)
            if found is None:
                return
            # RE2 finds `\B` between the bytes of a character, too.
            if not _is_within_character(text, begin):
                yield begin, end
            start = end if end > begin else end + 1
            while _is_within_character(text, start):
                start += 1


def _is_within_character(text: bytes, offset: int) -> bool:
    return offset < len(text) and text[offset] & 0xC0 == 0x80


def _between(text: AnyStr, spans: Iterable[tuple[int, int]]) -> list[AnyStr]:
    """The parts of a text that no match covers."""
    parts: list[AnyStr] = []
    start = 0
    for begin, end in spans:
        if end == 0 or begin == end == len(text):
            continue
        parts.append(text[start:begin])
        start = end
    parts.append(text[start:])
    return parts


@lru_cache(maxsize=128)
def read_pattern(text: str) -> _Quick | _Linear:
    """Raises SpecError for a pattern that is not supported: groups, look-around, references, repetitions that never
    give back, and `$` before the end of an alternative that RE2 must search."""
    if len(text) > LONGEST_PATTERN:
        raise SpecError(f"a separator is a pattern longer than {LONGEST_PATTERN} characters")
    alternatives = _read(text)
    try:
        quick = re.compile(_TOKEN.sub(lambda token: _AS_JAVA.get(token[0], token[0]), text), re.ASCII)
    except re.error:
        raise SpecError("a separator is no valid pattern") from None
    if not _is_simple(alternatives):
        return _linear(alternatives)
    return _Quick(quick, max(len(text), sum(part.least for parts in alternatives for part in parts)))


def _is_simple(alternatives: list[list[_Part]]) -> bool:
    """Whether no search goes back in the text, and Python and Java mean the same by it: after an empty match Java looks
    for no other one at its place."""
    varying = [part for parts in alternatives for part in parts if part.varies]
    if len(alternatives) > 1:
        return not varying and all(any(part.is_character for part in parts) for parts in alternatives)
    return not varying or (varying == [alternatives[0][-1]] and not varying[0].repeat.endswith("?", 1))


def _read(text: str) -> list[list[_Part]]:
    """The alternatives of a pattern, each with its parts in their order."""
    alternatives: list[list[_Part]] = [[]]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise SpecError(
                "a separator is a pattern that is not supported; it takes no groups and no look-around"
            )
        at = token.end()
        if token["bar"]:
            alternatives.append([])
        elif token["assertion"]:
            alternatives[-1].append(_Part(token[0], is_character=False))
        else:
            repeat = _REPEAT.match(text, at)
            at = repeat.end() if repeat else at
            alternatives[-1].append(_repeated(token[0], repeat))
    return alternatives


def _repeated(token: str, repeat: re.Match[str] | None) -> _Part:
    if repeat is None:
        return _Part(token, is_character=True)
    if repeat["held"]:
        raise SpecError("a separator is a pattern that is not supported; no '+' can follow a repetition")
    if repeat["sign"]:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat["sign"]]
    else:
        least = int(repeat["least"])
        most = least if not repeat["comma"] else int(repeat["most"]) if repeat["most"] else None
    return _Part(token, True, repeat[0], least, most)


def _linear(alternatives: list[list[_Part]]) -> _Linear:
    most = [part.least + 1 if part.most is None else part.most for parts in alternatives for part in parts]
    if sum(most) > _MOST_REPETITIONS:
        raise SpecError("a separator is a pattern that repeats too much")
    has_bound = all(part.most is not None for parts in alternatives for part in parts)
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY_BYTES, False
    try:
        pattern, before_line_feed = (
            re2.compile("|".join(_in_re2(parts, end) for parts in alternatives), options) for end in _ENDS
        )
    except re2.error:
        raise SpecError("a separator is no valid pattern") from None
    return _Linear(pattern, before_line_feed, sum(most) * _CHARACTER_BYTES if has_bound else _UNBOUNDED)


def _in_re2(parts: list[_Part], end: str) -> str:
    """An alternative. One that ends in `$` is a group with `end` behind it."""
    looks = [place for place, part in enumerate(parts) if part == _END]
    if not looks:
        return "".join(_token_in_re2(part.token) + part.repeat for part in parts)
    if looks != [len(parts) - 1]:
        raise SpecError("a separator is a pattern that is not supported; it takes '$' only at its end")
    return f"({_in_re2(parts[:-1], end)}){end}"


def _token_in_re2(token: str) -> str:
    if token[0] == "[":
        negated = "^" * (token[1] == "^")
        return f"[{negated}{_IN_CLASS.sub(_in_class, token[1 + len(negated) : -1])}]"
    return _IN_RE2.get(token) or _literal(token)


def _in_class(part: re.Match[str]) -> str:
    if part[0] in (r"\s", r"\S"):
        return _IN_RE2[part[0]][1:-1]
    return part[0] if part[0] == "-" else _literal(part[0])


def _literal(text: str) -> str:
    """A character by itself or by its number; an escape that has a meaning stays."""
    if text.startswith(r"\u"):
        return rf"\x{{{text[2:]}}}"
    return text if text[-1].isascii() and text[-1].isalnum() else rf"\x{{{ord(text[-1]):x}}}"


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
        return read_pattern(separator).split(text)
    except SpecError as error:
        raise TransformError(error.message) from None
