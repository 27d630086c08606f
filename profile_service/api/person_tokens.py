"""Tokens by which a person calls: signed, bound to one fragment, over within an hour, and issued by a caller who knows the person.

`idgp_`, then base64url of canonical JSON `[issuer, person, end in epoch seconds]`, a dot, and base64url of its HMAC-SHA-256. Such
a token works as long as its issuer has the scope `persons`.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

from idgraph.model import canonical
from idgraph.model.callers import Caller, Scope

PURPOSE = "person-tokens"
PREFIX = "idgp_"


class ActingPerson(Caller):
    """A person who calls. `person` is the id of a fragment; what is visible is what the issuer may see."""

    person: str

    @property
    def role(self) -> str:
        return "person"


def charged_name(caller: Caller) -> str:
    """The name whose rate limit a call counts for: a person has one limit for all keys, sessions and
    tokens."""
    if isinstance(caller, ActingPerson):
        return f"{caller.name.rpartition(' for ')[0]} for {caller.person}"
    # The keys of a person are `PERSON/KEY`.
    return caller.name.partition("/")[0]


class PersonTokens:
    """Issues and checks them."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    def issue(self, issuer: Caller, person: str, minutes: int) -> tuple[str, int]:
        """A token, and its end in epoch milliseconds."""
        end = int(self._clock()) + 60 * minutes
        content = urlsafe_b64encode(canonical.encode([issuer.name, person, end]))
        return f"{PREFIX}{content.decode()}.{self._mac(content)}", end * 1000

    def caller(self, token: str, issuer_of: Callable[[str], Caller | None]) -> ActingPerson | None:
        """The caller of this token; None for one that is not ours or expired, or whose issuer may not issue
        any more."""
        content, _, mac = token.removeprefix(PREFIX).encode().partition(b".")
        if not hmac.compare_digest(mac, self._mac(content).encode()):
            return None
        name, person, end = canonical.decode(urlsafe_b64decode(content))
        issuer = issuer_of(name)
        if self._clock() >= end or issuer is None or Scope.PERSONS not in issuer.scopes:
            return None
        stated = issuer.model_dump(exclude={"name", "scopes"})
        return ActingPerson(**stated, name=f"{name} for {mac[:8].decode()}", person=person)

    def _mac(self, content: bytes) -> str:
        return urlsafe_b64encode(hmac.digest(self._key, content, "sha256")).decode().rstrip("=")
