"""One running profile service as its routes see it."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from idgraph.model import canonical
from idgraph.model.attributes import Catalogue
from idgraph.model.callers import Caller, Scope
from idgraph.model.errors import DamagedStateError
from idgraph.model.identifiers import Identifier
from idgraph.model.index import ProfileIndex
from idgraph.model.queries import Query as SearchQuery
from idgraph.model.query_cost import REQUEST_COST
from idgraph.model.query_language import warnings
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.model.store import ProfileStore
from idgraph.web.audit import AuditLog
from idgraph.web.limits import charge
from idgraph.web.refusals import BadQueryError, ForbiddenError, NotYetError
from profile_service.reader import Profile, ProfileReader, SearchResult
from profile_service.wanted import MASKED, Plain, PlainAnswers, Question, Wanted
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.sealing import DataKeys

if TYPE_CHECKING:
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.web.cursors import SealedCursors
    from idgraph.web.openid import Identity, OpenId
    from profile_service.api.rights import Rights
    from profile_service.api.views import Views
    from profile_service.history import History
    from profile_service.links import Links, PinChange

# Late imports: a command that looks somebody up needs none of these, and waits for each.

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_NOTED = 1000
"""Callers and types that the log names."""
LONGEST_WAIT_SECONDS = 5.0
POLL_SECONDS = 0.05
MOST_WAITING = 10_000
"""Entries of the outbox: of more it is not waited for the end."""
KEYS_SECONDS = 10.0
"""So long it is not asked again whether the keyring is that of the profiles."""


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    from anyio import to_thread

    return await to_thread.run_sync(work, *arguments)


class ReadingAdapters(Protocol):
    """The adapters that profiles are read from. All are safe for several threads."""

    @property
    def store(self) -> ProfileStore: ...
    @property
    def index(self) -> ProfileIndex: ...
    @property
    def data_keys(self) -> DataKeys: ...
    @property
    def blind_index(self) -> BlindIndex: ...


class Followed(Protocol):
    """The snapshot and the callers that hold now."""

    def edition(self) -> PinnedSnapshot: ...
    def catalogue(self) -> Catalogue: ...
    def model(self, digest: str) -> bytes | None: ...
    def caller(self, token: str) -> Caller | None: ...
    def caller_named(self, name: str) -> Caller | None: ...
    def admitted(self, found: Identity) -> Caller | None: ...
    def still(self, caller: Caller) -> Caller | None: ...
    def is_ready(self) -> bool: ...


class Looked(NamedTuple):
    """The answer to a look-up. `is_shared`: several profiles share the identifier, and it belongs to none of them; `sharing`
    has them if they are wanted. `incomplete` as of `ProfileReader`; `hint` is for somebody who found nobody."""

    profiles: list[Profile]
    is_shared: bool
    sharing: list[Profile]
    incomplete: dict[str, Any]
    hint: str = ""

    def item(self, identifier: str, wanted: Wanted) -> dict[str, Any]:
        """As JSON has it."""
        profile = wanted.document(self.profiles[0]) if self.profiles else None
        found: dict[str, Any] = {"identifier": identifier, "profile": profile, "is_shared": self.is_shared}
        if self.sharing:
            found["sharing"] = [wanted.document(each) for each in self.sharing]
        if self.hint:
            found["hint"] = self.hint
        return found | ({"incomplete": self.incomplete} if self.incomplete else {})


class Feed(Protocol):
    """Deliveries of changes to one receiver, as whoever watches the service sees them."""

    name: str

    def lag_seconds(self) -> float | None:
        """Since when the oldest change waits that the receiver has not taken; None where another process delivers."""
        ...

    def is_failing(self) -> bool:
        """Whether the last delivery was not taken."""
        ...


class LookupNotes(Protocol):
    """Notes of look-ups, to be compared with features later."""

    def begin(
        self, reader: ProfileReader, caller: Caller, identifier: Identifier, snapshot: MetadataSnapshot
    ) -> Any:
        """The begin of a note, before the answer is made; None for a look-up of which none is made. Raises StoreError."""
        ...

    def end(self, begun: Any, attributes: Mapping[str, Any]) -> None:
        """Note the answer with these attributes, as nested objects."""
        ...


class ProfileService:
    """Readers of profiles, one for each thread, snapshot and clearance; and the log of what was revealed."""

    def __init__(
        self,
        adapters: ReadingAdapters,
        following: Followed,
        audit: AuditLog,
        require_keys: Callable[[], None] = lambda: None,
        rights: Rights | None = None,
        is_local: bool = False,
        has_committed: Callable[[str], bool] | None = None,
        contact_paths: Mapping[str, Sequence[str]] | None = None,
        cursor_key: bytes | None = None,
        project: Callable[[Collection[str]], bool] = lambda _: False,
    ) -> None:
        """`project` brings the documents of fragments up to date, and returns whether the index took them. `has_committed` says of an event's position whether it is stored, and raises QueryError. `contact_paths` are the
        attributes of each field of a contact search. `require_keys` raises KeyProviderError where the keyring is not that of
        the profiles. `is_local`: the store is on this machine. `cursor_key` has 64 bytes; without it, cursors end with the
        process."""
        self.is_local = is_local
        self._has_committed = has_committed
        self.contact_paths = contact_paths or {}
        self.following = following
        self._cursor_key = cursor_key or os.urandom(64)
        self._rights = rights
        self._adapters = adapters
        self.audit = audit
        self._require_keys = require_keys
        self._project = project
        self._keys_known = -math.inf
        self._own = threading.local()
        self._answers = PlainAnswers()
        self._views: tuple[str, Views] | None = None
        self._noted: set[tuple[str, str]] = set()
        self.uses: dict[str, list[str]] = defaultdict(list)
        """The uses of a segment, by segment."""
        self.feeds: list[Feed] = []
        """Its webhooks and topics."""
        self.documents: SharedDocuments | None = None
        """Documents that all processes of the installation share; None for a command that asks for none of it."""
        self.openid: OpenId | None = None
        """The issuer whose tokens are accepted besides our own."""
        self.streams: Counter[str] = Counter()
        """Streams of changes that are open, by who is charged."""
        self.served: LookupNotes | None = None
        """Notes look-ups, to be compared with features later; None: none is."""
        self.is_stopping = False
        """Streams end."""

    @property
    def adapters(self) -> ReadingAdapters:
        """Where profiles are read from."""
        return self._adapters

    @cached_property
    def cursors(self) -> SealedCursors:
        """Cursors as callers get them."""
        from idgraph.web.cursors import SealedCursors

        return SealedCursors(self._cursor_key)

    @property
    def rights(self) -> Rights:
        """The acts besides reading that callers may ask for."""
        if self._rights is None:
            from profile_service.api.rights import NO_RIGHTS

            self._rights = NO_RIGHTS
        return self._rights

    def reader(self, caller: Caller) -> ProfileReader:
        """A reader of the data that this caller sees, for this thread and one request. Raises
        NotReadyError."""
        edition = self.following.edition()
        if getattr(self._own, "etag", None) != edition.etag:
            adapters = self._adapters
            self._own.reader = ProfileReader(
                adapters.store,
                adapters.index,
                adapters.data_keys,
                adapters.blind_index,
                edition.snapshot,
                self.following.catalogue,
            )
            self._own.etag = edition.etag
        reader: ProfileReader = self._own.reader
        granted = caller.granted(datetime.now(UTC)) if caller.grants else frozenset()
        own = reader.with_clearance(caller.clearance, granted)
        own.charge = _charge
        return own

    def plain(
        self, caller: Caller, identifier: Identifier, has: Callable[[str], bool], only_kept: bool = False
    ) -> Plain | None:
        """The answer to a look-up with `MASKED`, if there is one person to show; `has` says whether the caller has that of a
        tag. None where `lookup` must say what there is instead, and with `only_kept` where no such answer is kept. Raises
        NotReadyError, StoreError."""
        served = self.served
        begun = served and served.begin(
            self.reader(caller), caller, identifier, self.following.edition().snapshot
        )
        found = self._plain(caller, identifier, has, only_kept)
        if served and begun and found is not None and found.body is not None:
            served.end(begun, canonical.decode(found.body)["attributes"])
        return found

    def _plain(
        self, caller: Caller, identifier: Identifier, has: Callable[[str], bool], only_kept: bool = False
    ) -> Plain | None:
        question = Question.of(caller, identifier, self.following.edition())
        changes = self._adapters.store.changes()
        found = None if changes is None else self._answers.get(changes, question)
        if found is None and only_kept:
            return None
        if found is None:
            reader = self.reader(caller)
            owners = reader.owners(identifier)
            if len(owners.persons) != 1 or reader.damaged:
                return None
            behaviour = reader.behaviour(owners.persons[0])
            etag = question.etag(owners.persons[0], behaviour.values())
            if behaviour.is_damaged:
                return None
            if has(etag):
                return Plain(etag, None)
            try:
                profile = reader.profile_of(owners.persons[0], behaviour=behaviour)
            except DamagedStateError:
                return None
            until = math.inf if behaviour.changes_at is None else behaviour.changes_at
            found = Plain(etag, canonical.encode(MASKED.document(profile)))
            if changes is not None:
                self._answers.keep(changes, question, found, until)
        return found._replace(body=None) if has(found.etag) else found

    def lookup(self, caller: Caller, identifier: Identifier, wanted: Wanted) -> Looked:
        """The profiles of an identifier as they may be shown; what is revealed is recorded first."""
        return self.lookup_each(caller, [identifier], wanted)[0]

    def lookup_each(self, caller: Caller, identifiers: Sequence[Identifier], wanted: Wanted) -> list[Looked]:
        """`lookup` of each, read together."""
        reader = wanted.reading(self.reader(caller))
        self._note_hidden_types(caller, reader, identifiers)
        served = self.served if wanted.fields is None and wanted.view is None else None
        snapshot = self.following.edition().snapshot
        begun = [served and served.begin(reader, caller, each, snapshot) for each in identifiers]
        looked = []
        for place, (asked, found) in enumerate(
            zip(identifiers, reader.lookup_each(identifiers, wanted.reveal), strict=True)
        ):
            is_shared = bool(reader.shared)
            shown = [] if is_shared and not wanted.sharing else wanted.read(self, caller, found, reader)
            incomplete = reader.take_incomplete()
            profiles, sharing = ([], shown) if is_shared else (shown, [])
            if served and profiles and (noted := begun[place]):
                served.end(noted, profiles[0].attributes())
            looked.append(
                Looked(
                    profiles, is_shared, sharing, incomplete, "" if found else reader.hint_of_type(asked.type)
                )
            )
            reader.shared.clear()
        return looked

    async def warnings(self, caller: Caller, wanted: Wanted, shown: Iterable[Profile]) -> list[str]:
        """Warnings about paths that a look-up asks for, and no attribute has."""
        unmatched = wanted.unmatched(shown)
        return await _in_thread(self._unknown, caller, unmatched) if unmatched else []

    def _unknown(self, caller: Caller, within: list[str]) -> list[str]:
        reader = self.reader(caller)
        return warnings(SearchQuery(), reader.types(), reader.found_type, within=within)

    def warnings_of_loss(self, caller: Caller) -> list[str]:
        """For an operator's answer without profiles: an index whose files were removed is made again, empty."""
        if (
            Scope.OPERATE not in caller.scopes
            or self._adapters.index.count(SearchQuery())
            or not self._adapters.store.scan(limit=1)
        ):
            return []
        return [
            "the index is empty, and the store has profiles: they wait in the outbox, or `idgraph reindex` brings them back"
        ]

    def _note_hidden_types(
        self, caller: Caller, reader: ProfileReader, identifiers: Sequence[Identifier]
    ) -> None:
        """Log once that a caller looks up by a hidden type: to the caller it is as if nobody had such an
        identifier."""
        if reader.sees_all:
            return
        for kind in {each.type for each in identifiers}:
            noted = caller.name, kind
            if reader.is_hidden_type(kind) and noted not in self._noted and len(self._noted) < MOST_NOTED:
                self._noted.add(noted)
                log.warning(
                    "%s looks up by %s, which its clearance %d hides, and finds nobody",
                    *noted,
                    caller.clearance,
                )

    def views(self) -> Views:
        """The views of the newest snapshot. Raises NotReadyError."""
        edition = self.following.edition()
        if self._views is None or self._views[0] != edition.etag:
            from profile_service.api.views import Views

            self._views = edition.etag, Views(edition.snapshot)
        return self._views[1]

    def is_immediate(self) -> bool:
        """Whether a look-up takes a millisecond: a row pattern may take some hundred. Raises NotReadyError."""
        derived = self.following.edition().snapshot.derived_attributes
        return self.is_local and all(each.pattern is None for each in derived)

    async def answer(self, wanted: Wanted, work: Callable[[], T]) -> T:
        """Do the work of a few look-ups. A local store needs a millisecond for one, and several threads would
        wait for the interpreter at each read: the event loop does that work. A thread does work that waits
        for a network, or evaluates row patterns. Raises NotReadyError."""
        if not self.is_immediate() or wanted.reveal or wanted.view is not None:
            return await _in_thread(work)
        return work()

    async def wait_for(self, position: str, is_indexed: bool) -> None:
        """Return when the event at a position is stored, and if asked for searchable. Raises NotYetError after
        LONGEST_WAIT_SECONDS, QueryError."""
        has_committed = self._has_committed
        if has_committed is None:
            raise BadQueryError("this service does not know the progress of the flow")
        import asyncio

        ends = time.monotonic() + LONGEST_WAIT_SECONDS

        async def until(holds: Callable[[], bool]) -> None:
            while not await _in_thread(holds):
                if time.monotonic() > ends:
                    raise NotYetError("a caller waited for a position that did not come")
                await asyncio.sleep(POLL_SECONDS)

        await until(lambda: has_committed(position))
        if is_indexed:
            waiting: set[str] | None = None

            def are_settled() -> bool:
                nonlocal waiting
                present = {each.fragment_id for each in self._adapters.store.outbox(MOST_WAITING)}
                if waiting is not None:
                    waiting &= present
                elif len(present) < MOST_WAITING:
                    # With more of them, the earlier ones are not known.
                    waiting = present
                return waiting is not None and not waiting

            await until(are_settled)

    def links(self, reader: ProfileReader) -> Links:
        """The links of the persons that a reader reads."""
        from profile_service.links import Links

        return Links(self._adapters.store, reader)

    def decide(self, caller: Caller, links: Links, change: PinChange, reason: str) -> bool:
        """Record and store decisions, and bring the index up to date. False where the index did not take it: searches show it
        once a flow has projected the outbox. Raises KeyProviderError, StoreError."""
        self._require_keys()
        for pin in change.pins:
            one, other = map(self.hashed, (pin.low, pin.high))
            self.note(caller, f"pin {pin.decision}", profile=one, other=other, purpose=reason)
        links.keep(change)
        return self._project(change.carriers)

    def history(self, reader: ProfileReader) -> History:
        """The history of fragments and profiles, under the names that a reader shows."""
        from profile_service.history import History

        return History(self._adapters.store, reader.shown_name)

    def caller(self, token: str) -> Caller | None:
        """The caller of this token; None for one that is unknown, revoked or expired. Raises
        NotReadyError."""
        from idgraph.web.openid import is_signed_token
        from profile_service.api.person_tokens import PREFIX

        if token.startswith(PREFIX) and self.rights.tokens is not None:
            return self.rights.tokens.caller(token, self.following.caller_named)
        if self.openid is not None and is_signed_token(token):
            identity = self.openid.bearer(token)
            return None if identity is None else self.following.admitted(identity)
        return self.following.caller(token)

    def require_found(self, is_found: bool) -> None:
        """Another keyring's hashes find nobody, which is no answer. Raises KeyProviderError."""
        if not is_found and time.monotonic() - self._keys_known > KEYS_SECONDS:
            self._require_keys()
            self._keys_known = time.monotonic()

    async def require_any(self, is_found: bool) -> None:
        """As `require_found`, not on the event loop."""
        if not is_found:
            await _in_thread(self.require_found, is_found)

    def sealed(self, page: SearchResult, search: str) -> str | None:
        """The cursor of the following page, for callers. `search` is what they asked: with another one it says nothing."""
        return None if page.cursor is None else self.cursors.seal(page.cursor, f"search {search}")

    def opened(self, cursor: str | None, search: str) -> str | None:
        """The index's cursor of a caller's. Raises BadQueryError."""
        return None if cursor is None else self.cursors.open(cursor, f"search {search}")

    def record(self, caller: Caller, purpose: str, profiles: list[Profile]) -> None:
        """Note what is about to be revealed: profiles by their keyed hash. Raises StoreError; then nothing may be shown."""
        entry = {"action": "reveal", "caller": caller.name, "purpose": purpose}
        self.audit.append(
            *(
                entry | {"profile": self.hashed(profile.id), "attributes": revealed}
                for profile in profiles
                if (revealed := [leaf.path for leaf in profile.leaves if leaf.protected])
            )
        )

    def require_rights(self, caller: Caller, wanted: Wanted) -> None:
        """As `Wanted.require_rights`; a reveal that is refused is recorded. Raises StoreError."""
        try:
            wanted.require_rights(caller)
        except ForbiddenError:
            self.note(caller, "refused reveal", purpose=wanted.purpose)
            raise

    def note(self, caller: Caller, action: str, **details: Any) -> None:
        """Note what is about to be done; `profile` is `hashed`. Raises StoreError; then it may not be done."""
        self.audit.append({"action": action, "caller": caller.name, **details})

    def hashed(self, name: str) -> str:
        """The keyed hash of an identifier or id."""
        return str(self._adapters.blind_index.identifier(Identifier.parse(name)))


def _charge(cost: int) -> None:
    """Charge the cost of a search, but for the request that it came with. Raises RateError."""
    charge(cost // REQUEST_COST)
