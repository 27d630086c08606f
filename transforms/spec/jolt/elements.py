"""Path elements: what one key of a Jolt spec, or one part of a dotted path, means.

An element's `canonical` text is the same for all spellings of one meaning (`&`, `&0`, `&(0,0)`): it finds
duplicate keys and orders keys that compete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from idgraph.model.errors import SpecError
from transforms.spec.jolt.scalars import is_blank, parse_int, split_path, unescaped, without_escaped
from transforms.spec.jolt.stars import Star


class Reference(NamedTuple):
    """`&(up,group)`: the key that matched `up` levels above, or what one of its `*` stood for."""

    up: int
    group: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A key as it stands."""

    key: str

    @property
    def canonical(self) -> str:
        return self.key.replace(".", "\\.")


@dataclass(frozen=True, slots=True)
class At:
    """A lone `@`: the value at hand."""

    canonical: str = "@"


@dataclass(frozen=True, slots=True)
class Dollar:
    """`$(up,group)`: a matched key as value."""

    reference: Reference

    @property
    def canonical(self) -> str:
        return f"$({self.reference.up},{self.reference.group})"


@dataclass(frozen=True, slots=True)
class Hash:
    """`#text`: that text as value."""

    text: str

    @property
    def canonical(self) -> str:
        return f"#({self.text})"


@dataclass(frozen=True, slots=True)
class Amp:
    """Text with references in it: `rating-&(1,2)`."""

    tokens: tuple[str | Reference, ...]

    @property
    def canonical(self) -> str:
        return "".join(
            token if isinstance(token, str) else f"&({token.up},{token.group})" for token in self.tokens
        )


@dataclass(frozen=True, slots=True)
class Transpose:
    """`@(up,path)`: the value found `up` levels above, down `path` (None for the value there itself)."""

    up: int
    path: tuple[Element, ...] | None

    @property
    def canonical(self) -> str:
        return f"@({self.up},{'.'.join(element.canonical for element in self.path or ())})"


@dataclass(frozen=True, slots=True)
class Array:
    """An array index: `[]` appends, `[3]` is explicit, `[&1]` a key, `[#2]` a count, `[@(1,x)]` a value."""

    index: int | Reference | Hash | Transpose | None
    text: str = ""
    """The spelling of an explicit index."""

    @property
    def canonical(self) -> str:
        match self.index:
            case None:
                return "[]"
            case int():
                return f"[{self.text}]"
            case Reference(up, group):
                return f"[&({up},{group})]"
            case Hash(text):
                return f"[#{int(text)}]"
            case Transpose():
                return f"[{self.index.canonical}]"


Element: TypeAlias = "Literal | At | Dollar | Hash | Amp | Transpose | Array | Star"


def parse_key(key: str) -> Element:
    """A key on the left side of a spec, or one part of a path. Raises SpecError without a pointer."""
    escaped = "\\" in key
    inspected = without_escaped(key) if escaped else key
    plain = unescaped(key) if escaped else key
    if inspected == "@":
        if plain != "@":
            raise SpecError(f"'@' stands alone, not in '{key}'")
        return At()
    if inspected == "*" and plain == "*":
        return Star("*")
    if inspected.startswith("@") or ("@(" in inspected and not inspected.startswith("[")):
        return parse_transpose(key)
    if "[" in inspected:
        if inspected.count("[") != 1 or inspected.count("]") != 1:
            raise SpecError(f"'{key}' has more than one '[' or ']', or only one of them")
        return _parse_array(plain)
    return _parse_text(key, inspected, plain)


def _parse_text(key: str, inspected: str, plain: str) -> Element:
    if "@" in inspected:
        raise SpecError(f"'@' can only be the first character, not in '{key}'")
    if "$" in inspected:
        return Dollar(_parse_reference(plain, "$"))
    if "&" in inspected:
        if "*" in inspected:
            raise SpecError(f"'{key}' mixes '*' and '&'")
        return _parse_amp(plain)
    if "*" in inspected:
        if inspected.count("*") != plain.count("*"):
            raise SpecError(f"'{key}' mixes '*' with an escaped '*'")
        return Star(plain)
    if "#" in inspected:
        return _parse_hash(plain)
    return Literal(plain)


def parse_path(path: str) -> tuple[Element, ...]:
    """A dotted path that is read or written. Raises SpecError without a pointer."""
    for wildcard in "*$":
        if wildcard in path and "\\" + wildcard not in path:
            raise SpecError(f"a path cannot hold '{wildcard}': '{path}'")
    elements = tuple(map(parse_key, split_path(path)))
    for element in elements:
        if isinstance(element, At | Hash | Star):
            raise SpecError(f"'{element.canonical}' cannot stand in the path '{path}'")
    return elements


def parse_transpose(key: str) -> Transpose:
    """`@(1,a.b)`, `@1`, `@a`. Raises SpecError without a pointer."""
    meat = key[1:]
    if not meat or key[0] != "@":
        raise SpecError(f"'@' must come first and be followed by a level or a path: '{key}'")
    if "@" in meat:
        raise SpecError(f"'@' cannot hold another '@': '{key}'")
    if "*" in meat or "[]" in meat:
        raise SpecError(f"'@' reads one value, it cannot hold '*' or '[]': '{key}'")
    if meat.startswith("("):
        if not meat.endswith(")") or len(meat) < 3:
            raise SpecError(f"'@(' needs a level or a path and a ')': '{key}'")
        meat = meat[1:-1]
    if not meat[0].isdigit():
        return Transpose(0, _subpath(meat, key))
    digits, comma, path = meat.partition(",")
    up = parse_int(digits)
    if up is None:
        raise SpecError(f"the level in '{key}' is not a number")
    return Transpose(up, _subpath(path, key) if comma and path else None)


def _subpath(path: str, key: str) -> tuple[Element, ...]:
    elements = () if is_blank(path) else parse_path(path)
    if not elements:
        raise SpecError(f"the path in '{key}' is empty")
    return elements


def _parse_reference(text: str, token: str) -> Reference:
    if not text.startswith(token):
        raise SpecError(f"'{token}' must be the first character of '{text}'")
    meat = text[1:]
    if not meat:
        return Reference(0, 0)
    numbers = [meat]
    if len(meat) >= 3 and meat[0] == "(" and meat[-1] == ")":
        numbers = meat[1:-1].rstrip(",").split(",")
    parsed = [parse_int(number) for number in numbers]
    if len(parsed) > 2 or any(number is None or number < 0 for number in parsed):
        raise SpecError(f"'{text}' is no reference; write {token}, {token}1 or {token}(1,2)")
    return Reference(parsed[0] or 0, (parsed[1] or 0) if len(parsed) == 2 else 0)


_AMP_TOKENS = re.compile(r"&[\d(),]*|[^&]+")


def _parse_amp(text: str) -> Amp:
    return Amp(
        tuple(
            _parse_reference(token, "&") if token[0] == "&" else token for token in _AMP_TOKENS.findall(text)
        )
    )


def _parse_hash(text: str) -> Hash:
    if not text.startswith("#") or len(text) == 1:
        raise SpecError(f"'#' must be followed by the text it stands for: '{text}'")
    if text[1] == "(":
        if text[-1] != ")":
            raise SpecError(f"'#(' is not closed in '{text}'")
        return Hash(text[2:-1])
    return Hash(text[1:])


def _parse_array(text: str) -> Array:
    if text[0] != "[" or text[-1] != "]":
        raise SpecError(f"an array index must stand alone: '{text}'")
    meat = text[1:-1]
    if not meat:
        return Array(None)
    if meat[0] == "&":
        return Array(_parse_reference(meat, "&"))
    if meat[0] == "#":
        levels = parse_int(meat[1:] or "0")
        if levels is None or levels < 0:
            raise SpecError(f"'{text}' must name a level, like [#2]")
        return Array(Hash(str(levels)))
    if meat[0] == "@":
        return Array(parse_transpose(meat))
    index = parse_int(meat)
    if index is None or index < 0:
        raise SpecError(f"'{text}' is no array index")
    return Array(index, meat)
