"""Waiting for the next revision without a thread or a connection for each who waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class RevisionWatch:
    """Wakes waiters when the revision changes, whichever process changed it.

    While anyone waits, one task reads the revision: at once when `poke` is called, else every `interval`
    seconds. All waiters are on one event loop; `poke` and `close` may be called from any thread.
    """

    def __init__(self, read: Callable[[], str], interval: float) -> None:
        self._read = read
        self._interval = interval
        self._seen: str | None = None
        self._waiting = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._poked = asyncio.Event()

    async def wait(self, known: str, timeout: float) -> None:
        """Returns when the revision is not `known`, after `timeout` seconds, or when closed."""
        self._loop = asyncio.get_running_loop()
        self._waiting += 1
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self._closed or self._seen not in (None, known))
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

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
        self._closed = True
        self.poke()

    async def _follow(self) -> None:
        while self._waiting:
            self._poked.clear()
            try:
                self._seen = await asyncio.to_thread(self._read)
            except Exception:
                # Waiters stay until their time is up and then meet the error themselves.
                log.warning("cannot read the newest revision", exc_info=True)
            async with self._changed:
                self._changed.notify_all()
            try:
                async with asyncio.timeout(self._interval):
                    await self._poked.wait()
            except TimeoutError:
                pass
        self._seen = None
        self._task = None
