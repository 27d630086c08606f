"""The newest metadata snapshot and the callers, followed in threads: no request waits for the metadata service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from idgraph.model.attributes import Catalogue
from idgraph.model.callers import (
    Caller,
    CallerList,
    CallerRights,
    Grant,
    KnownPerson,
    Scope,
    token_digest,
)
from idgraph.model.errors import SnapshotSignatureError
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.repeating import Outage, Repeating
from idgraph.web.openid import Identity
from idgraph.web.refusals import NotReadyError

LONG_POLL_SECONDS = 10.0
CALLERS_SECONDS = 1.0
"""Between two changes of the callers that it learns of: new tokens work, and revoked ones stop working, as soon."""
CATALOGUE_SECONDS = 1.0
"""Between two readings of the catalogue, which is read whole."""
_UNBOUND = CallerRights(clearance=100, may_reveal=True, scopes=frozenset(Scope))


class MetadataSource(Protocol):
    """The metadata service as the profile service sees it. Every method raises MetadataError."""

    def snapshot(self, etag: str | None, wait: float) -> PinnedSnapshot | None: ...
    def catalogue(self, etag: str | None, wait: float) -> tuple[Catalogue, str] | None: ...
    def model(self, digest: str) -> bytes | None: ...
    def callers(self, etag: str | None, wait: float) -> tuple[CallerList, str] | None: ...


class SignedCaller(Caller):
    """A caller with a token of an issuer; `identity` is issuer and subject."""

    identity: str


class Following:
    """While the metadata service is away, the last snapshot and the last callers stay in force. A context manager."""

    def __init__(self, source: MetadataSource) -> None:
        self._source = source
        self._edition: PinnedSnapshot | None = None
        self._catalogue: tuple[Catalogue, str] | None = None
        self._callers: dict[str, Caller] | None = None
        self._callers_etag: str | None = None
        self._people: dict[str, KnownPerson] = {}
        self._grants: dict[str, tuple[Grant, ...]] = {}
        self._threads = [
            _following("snapshot-follower", self._follow_snapshot, 0.0),
            _following("catalogue-follower", self._follow_catalogue, CATALOGUE_SECONDS),
            _following("callers-follower", self._follow_callers, CALLERS_SECONDS),
        ]

    def __enter__(self) -> Following:
        for thread in self._threads:
            thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            # A long poll is not waited for.
            thread.close(0)

    def edition(self) -> PinnedSnapshot:
        """The newest snapshot. Raises NotReadyError."""
        if self._edition is None:
            raise NotReadyError("the metadata service has not answered yet")
        return self._edition

    def catalogue(self) -> Catalogue:
        """The types of all attributes, also of those that no snapshot has. Raises NotReadyError."""
        if self._catalogue is None:
            raise NotReadyError("the metadata service has not answered yet")
        return self._catalogue[0]

    def model(self, digest: str) -> bytes | None:
        """A model of the metadata service, in use or not; None if there is none. Raises MetadataError."""
        return self._source.model(digest)

    def caller(self, token: str) -> Caller | None:
        """The caller of this token; None for one that is unknown, revoked or expired. Raises
        NotReadyError."""
        if self._callers is None:
            raise NotReadyError("the metadata service has not answered yet")
        # Digests are looked up, not tokens: timing says nothing that leads to a token.
        return self._live(token_digest(token))

    def admitted(self, found: Identity) -> SignedCaller | None:
        """The caller whom an issuer vouches for; None for an account that is disabled. Raises
        NotReadyError."""
        if self._callers is None:
            raise NotReadyError("the metadata service has not answered yet")
        known = self._people.get(token_digest(found.key))
        if known is not None and known.is_disabled:
            return None
        bound = (known and known.bound) or _UNBOUND
        return SignedCaller(
            # A new person has no name of ours yet, and must not take another person's.
            name=known.name if known is not None else f"sso:{found.subject}",
            digest="",
            expires=found.expires,
            clearance=min(found.rule.clearance, bound.clearance),
            may_reveal=found.rule.may_reveal and bound.may_reveal,
            scopes=found.all_scopes & bound.scopes,
            grants=self._grants.get(known.name if known else "", ()),
            identity=found.key,
        )

    def still(self, caller: Caller) -> Caller | None:
        """The caller with the present rights, for work that takes longer than a request; None for one who may
        call no more."""
        if isinstance(caller, SignedCaller):
            known = self._people.get(token_digest(caller.identity))
            is_out = caller.is_expired(datetime.now(UTC)) or (known is not None and known.is_disabled)
            bound = (known and known.bound) or _UNBOUND
            has_more = caller.clearance > bound.clearance or (caller.may_reveal and not bound.may_reveal)
            present = caller.model_copy(update={"grants": self._grants.get(known.name if known else "", ())})
            return None if is_out or has_more or caller.scopes - bound.scopes else present
        return self._live(caller.digest)

    def _live(self, digest: str) -> Caller | None:
        found = (self._callers or {}).get(digest)
        return None if found is None or found.is_expired(datetime.now(UTC)) else found

    def caller_named(self, name: str) -> Caller | None:
        """The caller of this name, whose token is in force."""
        now = datetime.now(UTC)
        found = (each for each in (self._callers or {}).values() if each.name == name)
        return next((each for each in found if not each.is_expired(now)), None)

    def is_ready(self) -> bool:
        """Whether requests can be answered."""
        return None not in (self._edition, self._catalogue, self._callers)

    def _follow_snapshot(self) -> None:
        known = self._edition
        answer = self._source.snapshot(known and known.etag, 0 if known is None else LONG_POLL_SECONDS)
        self._edition = answer or known

    def _follow_catalogue(self) -> None:
        known = self._catalogue
        answer = self._source.catalogue(known and known[1], 0 if known is None else LONG_POLL_SECONDS)
        self._catalogue = answer or known

    def _follow_callers(self) -> None:
        known = self._callers_etag
        answer = self._source.callers(known, 0 if known is None else LONG_POLL_SECONDS)
        if answer is None:
            return
        found, self._callers_etag = answer
        self._people = {each.identity: each for each in found.people}
        grants: dict[str, tuple[Grant, ...]] = {}
        for each in found.grants:
            grants[each.person] = (*grants.get(each.person, ()), each)
        self._grants = grants
        self._callers = {each.digest: self._with_grants(each) for each in found.callers}

    def _with_grants(self, caller: Caller) -> Caller:
        # The keys of a person are `PERSON/KEY`.
        grants = self._grants.get(caller.name.partition("/")[0])
        return caller if grants is None else caller.model_copy(update={"grants": grants})


def _following(name: str, step: Callable[[], None], pause: float) -> Repeating:
    outage = Outage("the metadata service")

    has_answered = False

    def follow() -> None:
        nonlocal has_answered
        step()
        has_answered = True
        outage.is_over()

    def report(error: Exception) -> None:
        meanwhile = (
            "the last snapshot stays in force" if has_answered else "requests answer 503 until it is there"
        )
        outage.show_error(error, meanwhile, serious=(SnapshotSignatureError,))

    return Repeating(name, follow, report, pause=pause)
