"""Identity rules: which identifiers may belong to one person. A document of the metadata service, versioned like a spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from idgraph.model.documents import FrozenDocument
from idgraph.model.specs import IDENTIFIER_TYPE_PATTERN

NamespaceName = Annotated[str, Field(pattern=IDENTIFIER_TYPE_PATTERN)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Strength = Annotated[float, Field(strict=True, ge=0, le=1_000_000)]

LAST_PRIORITY = 1_000_000
"""The priority of a namespace that has no rules."""

DAY_MS = 86_400_000

SEARCHED_CHARACTERS = 512
"""A pattern sees so many characters of a value."""

Finder = Callable[[str, int, int], object]
"""Looks for a pattern in a text, from a character to another; falsy if there is none."""

_MOST_STEPS = 16 * SEARCHED_CHARACTERS**2
"""The most ways in which a pattern may be tried on a value, by a bound that its own text gives."""


class Normalisation(StrEnum):
    """The one form in which values of a namespace are compared, hashed and stored. Each drops outer blanks."""

    EXACT = "exact"
    LOWER = "lower"
    EMAIL = "email"
    """Lower case; of `Name <address>` the address."""
    EMAIL_PLUS = "email_plus"
    """As `email`, and the `+tag` of the local part is dropped."""
    PHONE = "phone"
    """E.164. A number without `+` or `00` belongs to `country`."""
    DIGITS = "digits"
    """Everything but the digits is dropped."""
    ZERO_PADDED = "zero_padded"
    """The leading zeros of a number are dropped; one digit stays."""


class Owner(StrEnum):
    """The owner of an identifier that several persons claim."""

    FIRST = "first"
    LATEST = "latest"
    NONE = "none"


class NamespaceRules(FrozenDocument):
    """The rules for the identifiers of one namespace."""

    priority: int = Field(default=LAST_PRIORITY, ge=1, le=LAST_PRIORITY, description="1 is the highest.")
    unique: bool = Field(default=False, description="At most one for each person; the same as `max` 1.")
    max: Count | None = Field(default=None, description="At most so many for each person.")
    moves: Owner | None = Field(default=None, description="Another word for `owner`.")
    owner: Owner | None = Field(
        default=None, description="Owner of an identifier that several persons claim. Default: `first`."
    )
    normalise: Normalisation = Normalisation.EXACT
    country: str = Field(default="1", pattern=r"^[1-9][0-9]{0,2}$", description="Calling code for `phone`.")
    hub_limit: Count | None = Field(default=None, description="In place of the rules' own.")
    connects: dict[NamespaceName, Count] = Field(
        default={},
        description="The number of identifiers of another namespace that one of this namespace may join.",
    )
    counted: bool = Field(
        default=True, description="False: it joins, and is no neighbour of a hub nor a part of `size_limit`."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.unique and self.max not in (None, 1):
            raise ValueError("`unique` and a `max` above 1 contradict each other")
        if self.moves is not None and self.owner is not None:
            raise ValueError("give `owner` or `moves`, not both")
        if not self.counted and self.largest is not None:
            raise ValueError("a namespace that is not `counted` has no `unique` and no `max`")
        return self

    @property
    def largest(self) -> int | None:
        """The number that a person may have; None if that is not limited."""
        return 1 if self.unique else self.max

    @property
    def owned_by(self) -> Owner:
        """The owner in force."""
        return self.owner or self.moves or Owner.FIRST


class BlockedValue(FrozenDocument):
    """A value, or a regular expression that is searched for: what matches is no identifier. Compared with the value
    without outer blanks and with the normalised one."""

    namespace: NamespaceName | None = Field(default=None, description="Absent: every namespace.")
    value: str | None = Field(default=None, max_length=2048)
    pattern: str | None = Field(default=None, max_length=500)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
                steps = _steps(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"not a regular expression: {error}") from None
            if steps > _MOST_STEPS:
                raise ValueError(
                    "the pattern can take too long on some values: begin it with `^`, "
                    "and repeat characters only, not groups that repeat or choose"
                )
        return pattern

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if (self.value is None) == (self.pattern is None):
            raise ValueError("give either `value` or `pattern`")
        return self


class Limit(FrozenDocument):
    """At most `max` identifiers of some namespaces for each person: in all, or first seen within any half-open window."""

    namespace: NamespaceName | None = None
    namespaces: tuple[NamespaceName, ...] = ()
    max: Count
    window_days: float | None = Field(default=None, gt=0, le=36_500)

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if (self.namespace is None) == (not self.namespaces):
            raise ValueError("give either `namespace` or `namespaces`")
        return self

    @property
    def of(self) -> tuple[str, ...]:
        """The namespaces that are counted together."""
        return self.namespaces if self.namespace is None else (self.namespace,)


class IdentityRules(FrozenDocument):
    """All rules. Without any, every link joins."""

    namespaces: dict[NamespaceName, NamespaceRules] = Field(default={}, max_length=200)
    blocked: tuple[BlockedValue, ...] = Field(default=(), max_length=1000)
    limits: tuple[Limit, ...] = Field(default=(), max_length=100)
    hub_limit: Count | None = Field(
        default=None, description="An identifier with more distinct neighbours joins nothing."
    )
    strength: dict[str, Strength] = Field(default={}, description="By source; 1 where it is not named.")
    least_strength: Strength = Field(default=0, description="Weaker evidence suggests, and does not join.")
    size_limit: Count | None = Field(
        default=None,
        description="While a person has more identifiers, its weakest links stop joining.",
    )

    @model_validator(mode="after")
    def _count_what_counts(self) -> Self:
        limited = {name for each in self.limits for name in each.of}
        limited.update(*(each.connects for each in self.namespaces.values()))
        if uncounted := sorted(each for each in limited if not self.namespace(each).counted):
            raise ValueError(f"`limits` and `connects` count {uncounted[0]!r}, which is not `counted`")
        return self

    def namespace(self, name: str) -> NamespaceRules:
        """The rules of a namespace, also of one that is not named."""
        return self.namespaces.get(name, _UNNAMED)


_UNNAMED = NamespaceRules()


def _steps(pattern: str) -> int:
    """A bound of the ways in which Python's engine, which goes back in the text, tries a pattern on a value.

    Each repetition multiplies by how often it can match; a repetition of something that itself has ways multiplies each
    time. Without `^` it is tried at each character.
    """
    parsed = _PARSER.parse(pattern)
    return _ways(parsed) * (1 if _begins(parsed) else SEARCHED_CHARACTERS)


def _begins(parsed: Any) -> bool:
    begins = len(parsed) > 0 and parsed[0] == (_PARSER.AT, _PARSER.AT_BEGINNING)
    return begins and not parsed.state.flags & re.MULTILINE


def finders(patterns: Iterable[str]) -> Sequence[Finder]:
    """Functions that find one of some patterns in a text: `match` for those that can only be found at its beginning,
    where `search` would try each character, and one call for all that can be one pattern."""
    return _finders(tuple(patterns))


# Each map task asks again, and to parse patterns takes milliseconds.
@lru_cache
def _finders(patterns: tuple[str, ...]) -> tuple[Finder, ...]:
    begins = {each: _begins(_PARSER.parse(each)) for each in patterns}
    groups = [[each for each in begins if begins[each] is value] for value in (True, False)]
    beginning, others = map(_joined, groups)
    return (*(each.match for each in beginning), *(each.search for each in others))


def _joined(patterns: list[str]) -> list[re.Pattern[str]]:
    texts = [_FLAGS.sub(r"(?\1:", each, count=1) + ")" * bool(_FLAGS.match(each)) for each in patterns]
    try:
        return [re.compile("|".join(f"(?:{each})" for each in texts))] if texts else []
    except re.error:
        # Groups of one name, or flags that hold for a whole pattern.
        return [re.compile(each) for each in patterns]


def _ways(parsed: Iterable[tuple[Any, Any]]) -> int:
    ways = 1
    for operation, detail in parsed:
        if operation in _REPETITIONS:
            least, most, inner = detail
            most = min(int(most), SEARCHED_CHARACTERS)
            each = _ways(inner)
            ways *= most - min(least, most) + 1 if each == 1 else min(each**most * 2, _TOO_MANY)
        elif operation is _PARSER.BRANCH:
            ways *= _ways_of_choice(detail[1])
        elif operation is _PARSER.SUBPATTERN:
            ways *= _ways(detail[3])
        elif operation is _PARSER.ATOMIC_GROUP:
            ways *= _ways(detail)
        elif operation in (_PARSER.ASSERT, _PARSER.ASSERT_NOT):
            ways *= _ways(detail[1])
        elif operation in (_PARSER.GROUPREF, _PARSER.GROUPREF_EXISTS):
            raise re.error("references to groups are not supported")
        ways = min(ways, _TOO_MANY)
    return ways


def _ways_of_choice(choices: list[Any]) -> int:
    """If alternatives begin with different letters, at most one can go on."""
    first = {chr(each[0][1]).casefold() for each in choices if len(each) and each[0][0] is _PARSER.LITERAL}
    ways = [_ways(each) for each in choices]
    return max(ways) if len(first) == len(choices) else sum(ways)


_PARSER: Any = getattr(re, "_parser")  # noqa: B009 - the standard library's, which types do not know
_REPETITIONS = frozenset({_PARSER.MAX_REPEAT, _PARSER.MIN_REPEAT, _PARSER.POSSESSIVE_REPEAT})
_TOO_MANY = _MOST_STEPS + 1
_FLAGS = re.compile(r"\A\(\?([aims]+)\)")

_QUOTED = r"(?i)^[\"'(<\[]{0,3}(?:%s)[\"')>\]]{0,3}$"

SHOP_RULES: dict[str, Any] = {
    "namespaces": {
        "user_id": {"unique": True, "priority": 1, "normalise": "zero_padded", "hub_limit": 1_000_000},
        "customer_id": {"unique": True, "priority": 1, "normalise": "zero_padded", "hub_limit": 1_000_000},
        "email": {"max": 5, "priority": 2, "normalise": "email", "owner": "none"},
        "phone": {"max": 5, "priority": 3, "normalise": "phone"},
        "cart_id": {"priority": 4, "counted": False},
        "device_id": {"priority": 8, "moves": "latest"},
        "anonymous_id": {"priority": 9, "moves": "latest"},
    },
    "blocked": [
        # Words for "no value", also in quotes and brackets.
        {
            "pattern": _QUOTED
            % r"null|none|nil|nan|undefined|void|empty|missing|unknown|invalid|n[./]?a\.?|tb[ad]"
        },
        {
            "pattern": _QUOTED
            % "anon|anonymous|guest|visitor|nobody|test|error|true|false|-1|[+-]?inf(?:inity)?"
        },
        {
            "pattern": _QUOTED
            % "not[ _-]?(?:set|available|applicable|provided|specified|found|logged[ _-]?in)"
        },
        {
            "pattern": _QUOTED
            % "(?:not[ _-]?|un)(?:authenticated|identified)|logged[ _-]?out|redacted|filtered|deleted"
        },
        {
            "pattern": _QUOTED
            % "(?:(?:distinct|user|customer|client|device|anonymous)[ _-]?)?id|uu?id|e-?mail"
        },
        # Several of these words, as of a name or a key that was joined from parts.
        {"pattern": "(?i)^(?:null|none|nan|undefined)(?:[ ,;:/|_-]{1,3}(?:null|none|nan|undefined)){1,3}$"},
        # No letter and no digit but zeros: also all zeros of a UUID or a date, an empty object and array.
        {"pattern": r"^[0\-\s.,:;/+()?*#_\"'{}\[\]]*$"},
        {"pattern": "^[xX]{3,}$"},
        # Templates that nobody filled in, and objects that became text.
        {"pattern": r"\{\{|\$\{|#\{|<%|%%|%!|\*\||\[object "},
        {
            "pattern": r"^(?:\{[A-Za-z_.]+\}|\{[0-9]\}|%[sd]|<[A-Za-z_ ]+>|%[A-Za-z_]+%|\$[A-Za-z_]+|__[A-Za-z_]+__|\[\[.*|function ?\(.*)$"
        },
        # Errors of cells, `\\N` of MySQL, and `4.9E+11`: many numbers became this one.
        {"pattern": r"(?i)^(?:#(?:n/a|ref!|value!|name\?|num!|null!|div/0!)|\\n)$"},
        {"pattern": r"^[+-]?[0-9]{1,16}(?:[.,][0-9]{1,16}[eE][+-]?|[eE][+-])[0-9]{1,3}$"},
        # MD5, SHA-1 and SHA-256 of the empty text, of `null` and of `undefined`.
        *(
            {"pattern": f"^(?:{each})$"}
            for each in (
                "d41d8cd98f00b204e9800998ecf8427e|37a6259cc0c1dae299a7866489dff0bd|5e543256c480ac577d30f76f9120eb74",
                "da39a3ee5e6b4b0d3255bfef95601890afd80709|2be88ca4242c76e8253ac62474851065032d6833",
                "d5d4cd07616a542891b7ec2d0257b3a24b69856e",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b",
                "eb045d78d273107348b0300c01d29b7552d622abbc6faf81b3ec55359aa9950c",
            )
        ),
        # Numbers that thousands of devices report: no address, an Android fault, defaults of makers, examples.
        {
            "pattern": r"^(?:[fF]{8}(?:-[fF]{4}){3}-[fF]{12}|[fF]{2}(?::[fF]{2}){5}|02(?::00){5}|9774d56d682e549c)$"
        },
        {"pattern": "^(?:0?123456789(?:abcdef|ABCDEF)|12345678-1234-1234-1234-123456789(?:012|abc))$"},
        {
            "namespace": "email",
            "pattern": r"(?i)^(?:test|null|none|undefined|anonymous|no[._-]?e?mail|(?:no|do[._-]?not)[._-]?reply)@",
        },
        {
            "namespace": "email",
            "pattern": r"(?i)^(?:nan|nil|na|unknown|guest|user|email|name|example|asdf|abc|xxx|no|123)@"
            r"(?:nan|nil|na|unknown|undefined|null|none|guest|user|e?mail|domain|example|asdf|abc|xxx|no|123)"
            r"(?:\.[a-z]{2,5})?$",
        },
        {"namespace": "phone", "pattern": r"^\+?[0-9]{0,3}(?:0{7,}|1{9,}|2{9,}|3{9,}|4{9,}|5{9,})$"},
        {"namespace": "phone", "pattern": r"^\+?[0-9]{0,3}(?:6{9,}|7{9,}|8{9,}|9{9,}|0?123456789[0-9]?)$"},
    ],
    "hub_limit": 50,
}
"""The rules of an installation that has decided nothing: right for a shop."""

DEFAULT_RULES = IdentityRules.model_validate(SHOP_RULES)
"""The same, as a document."""
