"""The part of a profile that an answer shows, and kept answers that show all that a caller may see."""

from __future__ import annotations

import copy
import hashlib
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache

from idgraph.model import canonical, paths
from idgraph.model.callers import Caller
from idgraph.model.errors import DamagedStateError
from idgraph.model.identifiers import Identifier
from idgraph.web.refusals import BadQueryError, ForbiddenError
from merge.identity.components import Person
from profile_service import consents
from profile_service.consents import Consent, consent_of
from profile_service.reader import Profile, ProfileReader, SearchResult
from profile_service.visibility import NOTHING_GRANTED, Granted

if TYPE_CHECKING:
    from idgraph.model.snapshots import PinnedSnapshot
    from profile_service.api.views import View
    from profile_service.service import ProfileService


class Wanted:
    """The part of a profile that an answer shows: all attributes, some, or a view; maybe with provenance,
    maybe with protected values opened."""

    def __init__(
        self,
        fields: list[str] | None,
        provenance: bool,
        reveal: bool,
        purpose: str | None,
        view: View | None = None,
        show_identifiers: bool = True,
    ) -> None:
        """`fields` are attribute paths; everything below one belongs to it. Raises BadQueryError."""
        if fields is not None and view is not None:
            raise BadQueryError("`view` selects the attributes; leave `fields` out")
        self.fields = fields
        """The requested paths; None for all, or for a view."""
        self._fields = fields if view is None else view.sources
        self.provenance = provenance
        self.reveal = reveal
        self.purpose = (purpose or "").strip()
        self.view = view
        self._show_identifiers = show_identifiers
        self.sharing = False
        """Whether the profiles are shown that share an identifier which belongs to none of them."""
        self._purposes = {view.document.purpose} if view and view.document.purpose else set[str]()

    @property
    def is_plain(self) -> bool:
        """Whether it is as `MASKED`."""
        asks = self.fields is not None or self.provenance or self.reveal or self.view is not None
        return not (asks or self.sharing or self._purposes) and self._show_identifiers

    def with_purpose(self, purpose: str | None) -> Wanted:
        """The same, limited to profiles that have consented to a purpose."""
        wanted = copy.copy(self)
        wanted._purposes = self._purposes | ({purpose} if purpose else set())
        return wanted

    def require_rights(self, caller: Caller) -> None:
        """Raises ForbiddenError, BadQueryError."""
        if self.reveal and not caller.may_reveal:
            raise ForbiddenError("this caller may not reveal protected values")
        if self.reveal and not self.purpose:
            raise BadQueryError("`reveal` needs a `purpose`, which is recorded")

    def reading(self, reader: ProfileReader) -> ProfileReader:
        """The reader for such an answer: a consent that it rests on counts, whether or not the caller sees it."""
        return reader.reading_always(consents.ROOT) if self._purposes else reader

    def read(
        self, service: ProfileService, caller: Caller, found: list[Profile], reader: ProfileReader
    ) -> list[Profile]:
        """The found profiles as they may be shown; what is revealed is recorded first. Raises StoreError, and
        DamagedStateError where nothing but damaged fragments was found."""
        if reader.damaged and not found:
            raise DamagedStateError("a stored fragment is damaged; restore it from a backup")
        shown = [self.of(each) for each in self._consented(found, reader)]
        if self.reveal:
            service.record(caller, self.purpose, shown)
        return shown

    def of(self, profile: Profile) -> Profile:
        """The profile with the attributes that are asked for."""
        if self._fields is None:
            return profile
        fields = self._fields
        return profile._replace(
            leaves=tuple(
                leaf for leaf in profile.leaves if any(paths.is_within(leaf.path, field) for field in fields)
            )
        )

    def unmatched(self, shown: Iterable[Profile]) -> list[str]:
        """The requested paths at or below which no profile has a value."""
        if not self.fields:
            return []
        there = [leaf.path for profile in shown for leaf in profile.leaves]
        return [field for field in self.fields if not any(paths.is_within(each, field) for each in there)]

    def left_out(self, found: SearchResult, shown: list[Profile]) -> list[str]:
        """A warning about profiles that were found and have not given each consent that the answer needs."""
        number = len(found.profiles) - len(shown)
        if not self._purposes or not number:
            return []
        purposes = " and ".join(sorted(self._purposes))
        return [f"left out for want of consent to {purposes}: {number} of this page"]

    def document(self, profile: Profile) -> dict[str, Any]:
        """The result of `read` as JSON data."""
        body = profile.canonical(self.provenance)
        if self.provenance and self.reveal:
            body["protected"] = [leaf.path for leaf in profile.leaves if leaf.protected]
        if not self._show_identifiers:
            body["identifiers"] = []
        return body if self.view is None else self.view.of(body)

    def _consented(self, found: list[Profile], reader: ProfileReader) -> Iterator[Profile]:
        """The profiles that gave each consent that the answer needs, with the consents as they may be
        shown."""
        if not self._purposes:
            yield from found
            return
        for each in found:
            given = [consent_of(each, purpose) for purpose in sorted(self._purposes)]
            if all(consent is not None and consent.is_given for consent in given):
                said = tuple(_consent_document(consent, reader) for consent in given if consent is not None)
                yield reader.visible(each)._replace(consents=said)


def _consent_document(consent: Consent, reader: ProfileReader) -> dict[str, Any]:
    place = (consents.ROOT, consent.purpose)
    seen = [name for name in ("source", "time") if reader.sees(paths.join((*place, name)))]
    return {"purpose": consent.purpose} | {name: getattr(consent, name) for name in seen}


MASKED = Wanted(None, provenance=False, reveal=False, purpose=None)
"""All that a caller may see, without revealing anything."""


MOST_BYTES = 64 << 20
"""Of the answers that a process keeps."""
_ENTRY_BYTES = 600
"""Of an entry besides its answer."""
_FORM = b"1"
"""Another one for each change of how answers are made: callers keep ETags longer than processes live."""


class Plain(NamedTuple):
    """The answer of a look-up, and its ETag. Without `body` the caller has it."""

    etag: str
    body: bytes | None


class Question(NamedTuple):
    """All that an answer rests on besides the store. An answer to another caller of the same clearance is the same."""

    identifier: Identifier
    edition: str
    clearance: int
    granted: Granted

    @classmethod
    def of(cls, caller: Caller, identifier: Identifier, edition: PinnedSnapshot) -> Question:
        granted = caller.granted(datetime.now(UTC)) if caller.grants else NOTHING_GRANTED
        return cls(identifier, edition.etag, caller.clearance, granted)

    def etag(self, person: Person, derived: Mapping[str, Any]) -> str:
        """The tag of the answer that shows this person with what is derived by path: of what it is made from, so that none must
        be made to know it."""
        digest = hashlib.sha256(_FORM)
        identifiers = [str(each) for each in person.identifiers]
        digest.update(canonical.encode([self.edition, self.clearance, sorted(self.granted), identifiers]))
        for each in person.members:
            digest.update(b"%d %b" % (len(each.stored.state), each.stored.state))
        if derived:
            digest.update(canonical.encode(derived))
        return f'"{digest.hexdigest()[:32]}"'


class PlainAnswers:
    """Answers with `MASKED`, kept by one process until anything changes in the store. Safe for several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._known: LRUCache[Question, tuple[Plain, float]] = LRUCache(most_bytes, _bytes)
        self._changes: int | None = None
        self._lock = threading.Lock()

    def get(self, changes: int, question: Question) -> Plain | None:
        """The answer while the store has had these `changes`."""
        with self._lock:
            if changes != self._changes:
                self._known.clear()
                self._changes = changes
                return None
            answer, until_ms = self._known.get(question, _NOTHING)
            return answer if time.time() * 1000 < until_ms else None

    def keep(self, changes: int, question: Question, answer: Plain, until_ms: float = math.inf) -> None:
        """Keep an answer that was read after the store had these `changes`, and that changes at a moment (epoch milliseconds)
        without any."""
        kept = answer, until_ms
        with self._lock:
            if changes == self._changes and _bytes(kept) <= self._known.maxsize:
                self._known[question] = kept


_NOTHING: tuple[Plain | None, float] = (None, 0)


def _bytes(kept: tuple[Plain, float]) -> int:
    return _ENTRY_BYTES + len(kept[0].body or b"")
