"""Stand-ins for the protected values of an event: a preview maps these, so that no draft sees a value,
whatever its text hides.

A stand-in shows the form of a value: the JSON type, whether a text is a number or a time, and a detector's
finding. It differs in each event and at each place. Only a value that names a person by a keyed hash has one
for all of a preview's events, since such values join persons.
"""

from __future__ import annotations

import copy
import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from idgraph.model import canonical, paths
from idgraph.model.identifiers import Identifier
from idgraph.model.paths import Place
from transforms.schema.detection import detect
from transforms.schema.detection.names import named
from transforms.spec.value_forms import in_form

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
        if not isinstance(value, str):
            return in_form(value, number)
        return _text(place, value, number, drawn.hex())


def _text(place: Place, value: str, number: int, drawn: str) -> Any:
    keys = [each for each in place if isinstance(each, str)][-2:]
    detection = detect(keys, named(keys), value)
    match str(detection.kind) if detection else "":
        case "email":
            return f"x{drawn[:20]}@example.com"
        case "phone":
            return f"+1202{200 + number % 800}{number // 800 % 10_000:04}"
        case kind if kind in _LIKE:
            return _LIKE[kind]
    if not value.strip():
        return value
    return in_form(value, number) or f"x{drawn[:15]}"
