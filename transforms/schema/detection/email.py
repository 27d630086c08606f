"""E-mail addresses, alone or anywhere in a text."""

from __future__ import annotations

import re

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.EMAIL, Classification.CONFIDENTIAL
_NAMED = by_name(_KIND, _LEVEL, "e-mail address")
_SHAPED = by_value(_KIND, _LEVEL, "the shape of an e-mail address", 0.95)

# Looked for around each `@`, and bounded, so that a long text costs no more than its length. Whatever is no dead letter
# may follow: dates and numbers are hung on addresses in keys, ids and names of files.
_BEFORE = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]")
_AFTER = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![^\W\d_])")


def email_address(text: str) -> Proposal | None:
    """A text that holds an e-mail address, as one might write it to, or as it stands in a URL."""
    return _SHAPED if _stands_around("@", text) or _stands_around("%40", text) else None


def _stands_around(sign: str, text: str) -> bool:
    at = text.find(sign)
    while at >= 0:
        if at and _BEFORE.match(text, at - 1) and _AFTER.match(text, at + len(sign)):
            return True
        at = text.find(sign, at + 1)
    return False


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            ("email", "e mail", "email address", "mail address", "email id", "emailaddress", "correo"),
            _NAMED,
        ),
    ),
    email_address,
    needs_digit=False,
)
