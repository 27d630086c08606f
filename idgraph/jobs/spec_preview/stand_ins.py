"""Stand-ins for the protected values of an event: a preview maps these, so that no draft sees a value, whatever its text hides.

A stand-in says of a value what its form is: the JSON type, whether a text is a number or a time, and what a detector takes it
for. It is another one in each event and at each place; only what names a person by a keyed hash has one for all of a
preview's events, since those are what joins persons.
"""

from __future__ import annotations

import copy
import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from idgraph.model import canonical, paths
from idgraph.model.identifiers import Identifier
from idgraph.model.paths import Place
from transforms.schema.detection import detect, named

_TIME = re.compile(r"[0-9]{1,4}(?:[-/.: T,]+[0-9]{1,4}){1,6}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?")
_GROUP = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_EPOCHS = ((10**9, 2**31, 1), (10**12, 2**31 * 1000, 1000))
"""Numbers that may be times: from, to, units in a second."""
_LIKE = {
    "payment_card": "4111111111111111",
    "bank_account": "DE89370400440532013000",
    "street_address": "1 Stand-in Street",
    "ip_address": "203.0.113.7",
    "geolocation": "48.137154, 11.576124",
}
"""A text that a detector takes for the same; it names nobody."""

Named = Callable[[Place], Iterable[str]]
"""The types of the identifiers that a value at a place becomes; none for what names nobody."""


class StandIns:
    """Those of one preview. Not safe for several threads."""

    def __init__(
        self, hashed: Callable[[Identifier], Identifier], normal: Callable[[str, str], Identifier | None]
    ) -> None:
        """`hashed` is the keyed hash of an identifier, and `normal` its normalised form by type and value, None where it is
        blocked."""
        self._key = secrets.token_bytes(32)
        self._hashed = hashed
        self._normal = normal
        self._names: dict[Identifier, Identifier] = {}

    def put_into(
        self, payload: Any, position: str, hides: Callable[[Place, Any], bool], named_at: Named
    ) -> Any:
        """The payload of an event with a stand-in at each place that is hidden."""
        hidden = [
            (place, value)
            for place, value in paths.places(payload)
            if place and value is not None and not isinstance(value, dict | list) and hides(place, value)
        ]
        if not hidden:
            return payload
        changed = copy.deepcopy(payload)
        for place, value in hidden:
            kinds = list(named_at(place))
            salt = [canonical.encode(value).decode()] if kinds else [position, *map(str, place)]
            stand_in = self._stand_in(place, value, salt)
            for kind in kinds:
                self._note(kind, stand_in, value)
            at = changed
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = stand_in
        return changed

    def _note(self, kind: str, stand_in: Any, value: Any) -> None:
        names = [self._normal(kind, str(each)) for each in (stand_in, value)]
        if names[0] is not None and names[1] is not None:
            ours, theirs = (self._hashed(each) for each in names if each is not None)
            self._names[ours] = theirs

    def name_of(self, identifier: Identifier) -> Identifier:
        """The keyed hash of a person's own identifier for that of its stand-in."""
        return self._names.get(identifier, identifier)

    def _stand_in(self, place: Place, value: Any, salt: list[str]) -> Any:
        drawn = hmac.digest(self._key, canonical.encode(salt), "sha256")
        number = int.from_bytes(drawn[:8])
        if isinstance(value, bool):
            return bool(number % 2)
        if isinstance(value, int):
            return _integer(value, number)
        if isinstance(value, float | Decimal):
            return type(value)(f"{number % 10**6}.{number % 89 + 10}")
        return _text(place, str(value), number, drawn.hex())


def _integer(value: int, number: int) -> int:
    for start, end, second in _EPOCHS:
        if start <= value < end:
            return start + number % (10**8 * second)
    return 10**8 + number % (9 * 10**8)


def _text(place: Place, value: str, number: int, drawn: str) -> str:
    keys = [each for each in place if isinstance(each, str)][-2:]
    reported = detect(keys, named(keys), value)
    match str(reported.kind) if reported else "":
        case "email":
            return f"x{drawn[:20]}@example.com"
        case "phone":
            return f"+1202{200 + number % 800}{number // 800 % 10_000:04}"
        case kind if kind in _LIKE:
            return _LIKE[kind]
    text = value.strip()
    if not text:
        return value
    if _NUMBER.fullmatch(text):
        whole = "." not in text
        return str(_integer(int(text), number)) if whole else f"{number % 10**6}.{number % 89 + 10}"
    if _TIME.fullmatch(text):
        return _time(text, number)
    return f"x{drawn[:15]}"


def _time(text: str, number: int) -> str:
    """Another time in the same form: parts of two digits are from 1 to 12, which is a day and a month, whichever comes first."""

    def other(found: re.Match[str]) -> str:
        size = len(found[0])
        part = 1 + number // 12 ** min(found.start(), 15) % 12
        return str(2000 + number % 20) if size == 4 else f"{part:0{size}}"

    body, zone = (text[:-1], "Z") if text.endswith("Z") else (text, "")
    if offset := re.search(r"[+-][0-9]{2}:?[0-9]{2}$", body) if ":" in body else None:
        body, zone = body[: offset.start()], body[offset.start() :]
    return _GROUP.sub(other, body) + zone
