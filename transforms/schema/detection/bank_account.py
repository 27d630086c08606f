"""Bank accounts: IBANs by their check digits and their country's form (ISO 13616); others by name."""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.BANK_ACCOUNT, Classification.RESTRICTED
_NAMED = by_name(_KIND, _LEVEL, "bank account")
_SHAPED = by_value(_KIND, _LEVEL, "the form of an IBAN, with its check digits", 0.98)

_SHORTEST = 15
_CANDIDATE = re.compile(r"(?<![^\W_])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?![^\W_])", re.ASCII)


def international_account(text: str) -> Proposal | None:
    """A text that holds an IBAN."""
    if len(text) < _SHORTEST:
        return None
    for candidate in _CANDIDATE.finditer(text):
        # In a sentence the words behind an IBAN look like groups of it: the country's length decides.
        groups = candidate[0].split(" ")
        length = _length(groups[0][:2])
        if length in accumulate(map(len, groups)) and _has_check_digits("".join(groups)[:length]):
            return _SHAPED
    return None


@cache
def _length(country: str) -> int:
    """Characters of an IBAN of a country, 0 where it has none. `country` is two letters."""
    from stdnum import numdb

    structure = numdb.get("iban").info(country)[0][1].get("bban", "")
    return sum(map(int, re.findall(r"\d+", structure)), len("GB00")) if structure else 0


def _has_check_digits(account: str) -> bool:
    from stdnum import iban

    return iban.is_valid(account)


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("iban", "bank account", "bank account number", "account iban", "routing number"),
                *("sort code", "bban", "bankaccount", "swift account", "kontonummer"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
    international_account,
)
