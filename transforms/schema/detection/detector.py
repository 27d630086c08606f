"""A detector: the names and the shapes of values that show one kind of sensitive data; and the table of names.

The table compares the last keys of a path, as words in any spelling.

`eMail`, `E_MAIL`, `e-mail` and `email` are found by the rules `"e mail"` and `"email"`. Abbreviations in
capitals are one word (`clientIPAddress` is `client ip address`), a plural is as good (`emails`, `IPs`), and
numbers count for nothing (`email2`, `IpAddressV4`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from idgraph.model.classification import Classification, Proposal, SensitiveKind

TEXT = frozenset({str})
TEXT_OR_NUMBER = frozenset({str, int, float})

ValueTest = Callable[[str], Proposal | None]
"""The proposal for one text, or None. Takes time linear in its length; raises nothing."""


class NameRule(NamedTuple):
    """Attribute names that show a kind, whatever the value.

    `names` are words in lower case, as a path's last keys must end: `"client ip"` matches `clientIp`,
    `CLIENT_IP` and `client.ip`. `types` are the Python types of values that the name applies to.
    """

    names: tuple[str, ...]
    proposal: Proposal
    types: frozenset[type] = TEXT


class Detector(NamedTuple):
    """The rules of one kind. `not_names` are endings that are no such data although a rule matches.
    `needs_digit`: the value test finds nothing in a text without digits and is not called."""

    kind: SensitiveKind
    name_rules: tuple[NameRule, ...]
    value_test: ValueTest | None = None
    not_names: tuple[str, ...] = ()
    needs_digit: bool = True


def by_name(
    kind: SensitiveKind, classification: Classification, what: str, confidence: float = 0.9
) -> Proposal:
    """The proposal of a name rule."""
    return Proposal(
        kind=kind, classification=classification, reason=f"the name says {what}", confidence=confidence
    )


def by_value(kind: SensitiveKind, classification: Classification, what: str, confidence: float) -> Proposal:
    """The proposal of a value test."""
    return Proposal(
        kind=kind, classification=classification, reason=f"a value has {what}", confidence=confidence
    )


_WORDS = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_ODD_SPELLINGS = (
    (re.compile(r"IPv[46]"), "Ip"),
    (re.compile(r"(addr(?:ess)?)[ _-]?[123]$", re.IGNORECASE), r"\1 line"),
)
_KEYS_LOOKED_AT = 2
_CHARACTERS_LOOKED_AT = 100
NameFindings = dict[type, Proposal]
"""The strongest proposal for values of each type; none for a type that the name does not speak of."""


class NameTable:
    """The name rules of all detectors, by their words. Immutable, safe for several threads."""

    def __init__(self, detectors: Iterable[Detector]) -> None:
        self._rules: dict[str, list[tuple[frozenset[type], Proposal]]] = {}
        self._not: set[str] = set()
        for detector in detectors:
            self._not.update(detector.not_names)
            for rule in detector.name_rules:
                for name in rule.names:
                    self._rules.setdefault(name, []).append((rule.types, rule.proposal))
        self._longest = max(len(name.split()) for name in {*self._rules, *self._not})

    def findings(self, keys: Sequence[str]) -> NameFindings:
        """The proposal by the last keys of a path. Takes time linear in the keys; worth remembering by path."""
        endings = _endings(keys, self._longest)
        if not self._not.isdisjoint(endings):
            return {}
        found: NameFindings = {}
        for types, proposal in (rule for ending in endings for rule in self._rules.get(ending, ())):
            for kind in types:
                if proposal.is_stronger(found.get(kind)):
                    found[kind] = proposal
        return found


def words(key: str) -> list[str]:
    """A key as words in lower case, numbers left out."""
    key = key[-_CHARACTERS_LOOKED_AT:]
    for odd, spelling in _ODD_SPELLINGS:
        key = odd.sub(spelling, key)
    return [word.lower() for word in _WORDS.findall(key)]


def _endings(keys: Sequence[str], longest: int) -> list[str]:
    spelt = [word for key in keys[-_KEYS_LOOKED_AT:] for word in words(key)]
    while spelt and spelt[-1] == "v":  # of `IpAddressV4`
        spelt.pop()
    some = spelt[-longest:]
    singular = [*some[:-1], _singular(some[-1])] if some else []
    return [" ".join(form[start:]) for form in (some, singular) for start in range(len(form))]


def _singular(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
