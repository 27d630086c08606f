"""Detectors: what looks like personal data or a secret, by an attribute's name and by one value's shape.

Pure: an answer depends on the path and the one value alone, never on what came before (law 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from idgraph.model.classification import Proposal
from transforms.schema.detection import account_numbers, location, person, secret
from transforms.schema.detection.names import NameFindings, named

ValueTests = dict[type, Callable[[Any], Proposal | None]]
"""The function that proposes a kind for a value, by the value's type. Values of other types get no proposal."""

_TESTS_OF_LETTERS: tuple[Callable[[str], Proposal | None], ...] = (
    person.email_address,
    location.internet_address,
    secret.secret,
)
_TESTS = (
    *_TESTS_OF_LETTERS,
    person.telephone_number,
    person.street,
    account_numbers.card_number,
    account_numbers.international_account,
    account_numbers.national_number,
    location.coordinates,
)
"""Each gives the proposal for one text, or None. It takes time linear in its length and raises nothing. Only
`_TESTS_OF_LETTERS` find anything in a text without digits."""

SHORTEST = 6
"""A text with fewer characters is no sensitive value by its form alone, but for `::1` and its like."""

_SURE_OF_A_KEY = 0.6

_DIGIT = re.compile(r"\d")

# No detector finds anything in plain letters with simple separators. Most texts of most events are such words.
_PLAIN_WORDS = re.compile(r"[A-Za-z_ ./:-]{0,23}")

# Most texts repeat. Only harmless ones are cached: a sensitive value must not stay in memory for speed.
_harmless: set[str] = set()
_REMEMBERED_CHARACTERS = 64
_MOST_REMEMBERED = 100_000


def tests_of(keys: Sequence[str]) -> ValueTests:
    """`detect` for the values of one attribute, by their type. Made once per attribute."""
    by_name = named(keys)
    tests: ValueTests = {str: shaped, int: _card_as_number, list: partial(_in_array, keys, by_name)}
    for kind, proposal in by_name.items():
        tests[kind] = partial(_whatever, proposal)
    return tests


def _whatever(by_name: Proposal, _: Any) -> Proposal:
    return by_name


def detect(keys: Sequence[str], by_name: NameFindings, value: Any) -> Proposal | None:
    """The proposal for one value of the attribute with these keys, or None. Pure.

    `by_name` is `named(keys)`. A name rule for the value's type is enough, so that all values of the
    attribute are treated alike. In an array every element and every key counts, at any depth.
    """
    kind = type(value)
    found = by_name.get(kind)
    if found is not None:
        return found
    if kind is str:
        return shaped(value)
    if kind is int:
        return _card_as_number(value)
    return _in_array(keys, by_name, value) if kind is list else None


def _card_as_number(value: int) -> Proposal | None:
    return account_numbers.card_number(str(value)) if 10**13 <= value < 10**16 else None


def shaped(text: str) -> Proposal | None:
    """The proposal for one text by its form alone, or None."""
    if text in _harmless:
        return None
    found: Proposal | None = None
    if len(text) >= SHORTEST and not _PLAIN_WORDS.fullmatch(text):
        for test in _TESTS if _DIGIT.search(text) else _TESTS_OF_LETTERS:
            proposal = test(text)
            if proposal is not None and proposal.is_stronger(found):
                found = proposal
    if found is None and len(text) <= _REMEMBERED_CHARACTERS:
        if len(_harmless) >= _MOST_REMEMBERED:
            _harmless.clear()
        _harmless.add(text)
    return found


def shaped_key(key: str) -> Proposal | None:
    """The proposal for an object's key, where keys should be names: an address or a number of somebody.

    Randomness alone does not count: many a key is a mere id.
    """
    found = shaped(key)
    return found if found is not None and found.confidence >= _SURE_OF_A_KEY else None


KNOWN_ANSWERS = (shaped, _harmless, _card_as_number)
"""Bound into the native code, which answers common cases itself: a text in the set is harmless, and only a number
of 14 to 16 digits can be a card."""


@lru_cache(maxsize=16_384)
def _named_within(keys: tuple[str, ...]) -> NameFindings:
    # Arrays have no nodes that cache these findings.
    return named(keys)


def _in_array(keys: Sequence[str], by_name: NameFindings, array: list[Any]) -> Proposal | None:
    strongest: Proposal | None = None
    # A stack, not recursion: the sender decides how deep an array is.
    waiting: list[tuple[Sequence[str], NameFindings, Any]] = [(keys, by_name, item) for item in array]
    while waiting:
        place, its_name, value = waiting.pop()
        if isinstance(value, list):
            waiting.extend((place, its_name, item) for item in value)
        elif isinstance(value, dict):
            for key, item in value.items():
                detection = shaped_key(key)
                if detection is not None and detection.is_stronger(strongest):
                    strongest = detection
                below = (*place[-1:], key)
                waiting.append((below, _named_within(below), item))
        else:
            found = detect(place, its_name, value)
            if found is not None and found.is_stronger(strongest):
                strongest = found
    return strongest
