"""Looks for key bytes or plaintext in what was shown to somebody."""

from __future__ import annotations

import base64


def shown(secret: bytes, text: str) -> bool:
    """Whether a run of 8 bytes of a secret stands in a text, raw, as hex, as base64 or as a repr."""
    spellings = []
    for start in range(len(secret) - 7):
        part = secret[start : start + 8]
        spellings += [part.decode("latin-1"), part.hex(), repr(part)[2:-1]]
    for shift in range(3):
        part = secret[shift : shift + 12]
        spellings += [base64.b64encode(part).decode(), base64.urlsafe_b64encode(part).decode()]
    return any(spelling in text for spelling in spellings)
