"""What a detector is: the names and the shapes of values that report one kind of sensitive data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind

TEXT = frozenset({str})
TEXT_OR_NUMBER = frozenset({str, int, float})

ValueTest = Callable[[str], Proposal | None]
"""The proposal for one text, or None. Takes time linear in its length; raises nothing."""


class NameRule(NamedTuple):
    """Attribute names that report a kind, whatever the value.

    `names` are words in lower case, as a path's last keys must end: `"client ip"` is reported by `clientIp`,
    `CLIENT_IP` and `client.ip`. `types` are the Python types of values that a name speaks of.
    """

    names: tuple[str, ...]
    proposal: Proposal
    types: frozenset[type] = TEXT


class Detector(NamedTuple):
    """All that reports one kind. `not_names` are endings that are no such data although a rule matches;
    `needs_digit` says that the value test finds nothing in a text without digits, so it is not asked."""

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
