"""What an attribute's name reports: its last keys as words, in whatever spelling.

`eMail`, `E_MAIL`, `e-mail` and `email` are found by the rules `"e mail"` and `"email"`. Abbreviations in
capitals are one word (`clientIPAddress` is `client ip address`), a plural is as good (`emails`, `IPs`), and
numbers count for nothing (`email2`, `IpAddressV4`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from idgraph.model.proposals import Proposal
from transforms.schema.detection.detector import Detector

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
        """What the last keys of a path report. Takes time linear in the keys; worth remembering by path."""
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
