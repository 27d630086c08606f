"""Another value of the same form: a number for a number, a time for a time, whichever value it was."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_TIME = re.compile(r"[0-9]{1,4}(?:[-/.: T,]+[0-9]{1,4}){1,6}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?")
_OFFSET = re.compile(r"[+-][0-9]{2}:?[0-9]{2}$")
_GROUP = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_EPOCHS = ((10**9, 2**31, 1), (10**12, 2**31 * 1000, 1000))
"""Numbers that may be times: from, to, units in a second."""


def in_form(value: Any, number: int = 0) -> Any:
    """A number, or a text that is a number or a time, for one; None for any other value. Another `number` gives another."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _integer(value, number)
    if isinstance(value, float | Decimal):
        return type(value)(_decimal(number))
    text = value.strip() if isinstance(value, str) else ""
    if _NUMBER.fullmatch(text):
        return _decimal(number) if "." in text else str(_integer(int(text), number))
    return _time(text, number) if _TIME.fullmatch(text) else None


def _decimal(number: int) -> str:
    return f"{number % 10**6}.{number % 89 + 10}"


def _integer(value: int, number: int) -> int:
    for start, end, second in _EPOCHS:
        if start <= value < end:
            return start + number % (10**8 * second)
    return 10**8 + number % (9 * 10**8)


def _time(text: str, number: int) -> str:
    """Parts of two digits are from 1 to 12, which is a day and a month, whichever comes first."""

    def other(found: re.Match[str]) -> str:
        size = len(found[0])
        part = 1 + number // 12 ** min(found.start(), 15) % 12
        return str(2000 + number % 20) if size == 4 else f"{part:0{size}}"

    body, zone = (text[:-1], "Z") if text.endswith("Z") else (text, "")
    if offset := _OFFSET.search(body) if ":" in body else None:
        body, zone = body[: offset.start()], body[offset.start() :]
    return _GROUP.sub(other, body) + zone
