"""One running service as its routes see it, and the watch that wakes waiting readers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from fastapi import Depends, Query, Request
from sqlalchemy.exc import SQLAlchemyError

from idgraph.model.errors import ConfigError
from idgraph.model.sandboxes import SandboxActivity
from idgraph.signatures import ServiceKey
from idgraph.web.cursors import PageRequest
from metadata_service.specs.rules import CompileSpec
from metadata_service.storage.database import Database
from metadata_service.storage.snapshots import SnapshotCache
from metadata_service.storage.tokens import TokenRecord

log = logging.getLogger(__name__)


TURN_SECONDS = 1.0
"""Between changes that waiters learn of, under steady change: all flows then ask for the same few answers."""
CHANGES_AT_ONCE = 10
"""So many changes wake waiters without a pause before turns begin: an admin's few edits are in force at once."""


class ChangeWatch:
    """Wakes waiters when what it reads changes, whichever process changed it.

    While anyone waits, one task reads it: at once when `poke` is called or another begins to wait, else every `interval`
    seconds. All waiters are on one event loop; `poke` and `close` may be called from any thread.
    """

    def __init__(self, read: Callable[[], str], interval: float) -> None:
        self._read = read
        self._interval = interval
        self._seen: str | None = None
        self._begun = self._done = 0
        self._turn = 0.0
        self._known: list[str] = []
        self.is_closed = False
        """Whether nobody waits any more."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._poked = asyncio.Event()

    async def wait(self, known: str, timeout: float) -> None:
        """Returns when it reads something else than `known` (under steady change, in turns), after `timeout` seconds, or when closed."""
        self._loop = asyncio.get_running_loop()
        self._known.append(known)
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        else:
            self._poked.set()
        begun = self._begun  # what was read before may be older than what is known
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(
                    lambda: self.is_closed or (self._done > begun and self._seen != known)
                )
        except TimeoutError:
            pass
        finally:
            self._known.remove(known)

    def poke(self) -> None:
        """Something was written: look now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._poked.set)
            except RuntimeError:
                log.debug("the event loop closed while a write was announced")

    def close(self) -> None:
        """Let all waiters go."""
        self.is_closed = True
        self.poke()

    async def _follow(self) -> None:
        while self._known:
            self._poked.clear()
            self._begun += 1
            try:
                seen = await asyncio.to_thread(self._read)
            except SQLAlchemyError:
                # Waiters stay until their time is up and then meet the error themselves. The database reports it, once.
                pass
            except Exception as error:
                log.warning("cannot read what others wait for: %s", type(error).__name__)
            else:
                if any(each != seen for each in self._known) and not self.is_closed:
                    await asyncio.sleep(self._turn - time.monotonic())
                    unused = time.monotonic() - (CHANGES_AT_ONCE - 1) * TURN_SECONDS
                    self._turn = max(self._turn, unused) + TURN_SECONDS
                self._seen, self._done = seen, self._begun
            async with self._changed:
                self._changed.notify_all()
            try:
                async with asyncio.timeout(self._interval):
                    await self._poked.wait()
            except TimeoutError:
                pass
        self._task = None


@dataclass(frozen=True)
class ServiceSettings:
    """`database_url` is `sqlite:///FILE` or `postgresql+psycopg://...` (needs the extra `postgresql`).

    `key` signs snapshots and the history. `poll_seconds` is how soon a waiting reader sees what another process wrote.
    `sandboxes` is where sandboxes are made, None where there can be none; `sandbox` is the one that this service is of. `sandbox_activity` says of
    a sandbox's name what is stored and runs, and raises StoreError.
    """

    database_url: str
    key: ServiceKey | None = None
    poll_seconds: float = 1.0
    max_body_bytes: int = 16 * 1024 * 1024
    sandboxes: Path | None = None
    sandbox: str = ""
    sandbox_activity: Callable[[str], SandboxActivity] | None = None

    def __post_init__(self) -> None:
        if self.poll_seconds <= 0:
            raise ConfigError("metadata service: poll_seconds must be positive")


@dataclass(frozen=True)
class MetadataService:
    """One running service."""

    settings: ServiceSettings
    database: Database
    snapshots: SnapshotCache
    watch: ChangeWatch
    """Of the revision."""
    snapshot_watch: ChangeWatch
    """Revision of the snapshot, which most discovered attributes do not change."""
    callers_watch: ChangeWatch
    """Of the callers of the profile service."""
    compile_spec: CompileSpec


async def _service(request: Request) -> MetadataService:
    return cast(MetadataService, request.app.state.service)


async def _acting(request: Request) -> TokenRecord:
    return cast(TokenRecord, request.state.caller)


async def _actor(request: Request) -> str:
    return cast(TokenRecord, request.state.caller).name


Service = Annotated[MetadataService, Depends(_service)]
Acting = Annotated[TokenRecord, Depends(_acting)]
Actor = Annotated[str, Depends(_actor)]
Reason = Annotated[str, Query(max_length=1000, description="Why the change is made; kept with it.")]


async def _page_request(
    cursor: Annotated[str | None, Query(max_length=10_000, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PageRequest:
    return PageRequest(cursor, limit)


Paging = Annotated[PageRequest, Depends(_page_request)]
