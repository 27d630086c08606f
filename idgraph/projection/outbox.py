"""Following up on what an index that was away did not take, beside the flow and while it is idle."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import IdgraphError
from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.store import OutboxEntry, ProfileStore
from idgraph.projection.indexing import AT_ONCE, index_again
from idgraph.projection.outages import Outage

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
LONGEST_POLL_SECONDS = 30.0
"""Between looks at an outbox of which the index refused some: to give it them again costs."""
MOST_LOOKS = 10
"""Looks at a filled outbox after which it is drained whatever its oldest entry."""


class OutboxDrainer:
    """A thread that drains the outbox when its oldest entry has stayed for two looks: a younger one is
    most likely being indexed by the task that wrote it. Use as a context manager."""

    def __init__(self, store: ProfileStore, index: ProfileIndex, rules: Callable[[], IndexRules]) -> None:
        """`rules` gives, at each drain, those of the newest snapshot."""
        self._store = store
        self._index = index
        self._rules = rules
        self._store_away = Outage("the outbox")
        self._index_away = Outage("the index")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-drainer", daemon=True)

    def __enter__(self) -> OutboxDrainer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Drain what is left, once."""
        self._stop.set()
        self._thread.join(timeout=60)
        self._drain()

    def _run(self) -> None:
        seen: list[OutboxEntry] = []
        looks = 0
        pause = POLL_SECONDS
        while not self._stop.wait(pause):
            try:
                oldest = self._store.outbox(1)
            except Exception as error:
                _show_report(self._store_away, error, "the outbox cannot be read until then")
                continue
            self._store_away.is_over()
            looks = looks + 1 if oldest else 0
            # A fragment that is written all the time has another version at each look.
            if oldest and (oldest == seen or looks >= MOST_LOOKS):
                pause = min(2 * pause, LONGEST_POLL_SECONDS) if self._drain() else POLL_SECONDS
                looks = 0
            seen = oldest

    def _drain(self) -> int:
        """Gives how many profiles the index refused."""
        try:
            left = drain_outbox(self._store, self._index, self._rules())
        except Exception as error:
            _show_report(self._index_away, error, "the outbox waits until it is back")
            return 0
        self._index_away.is_over()
        if left:
            log.warning("the index refused %d profile(s), which stay in the outbox", left)
        return left


def _show_report(outage: Outage, error: Exception, meanwhile: str) -> None:
    """Of whatever it is: a thread that dies in silence would leave profiles unfound for good."""
    if isinstance(error, IdgraphError):
        outage.show_report(str(error), meanwhile)
    else:
        # Only the type: the message of a stranger's exception may quote a profile.
        outage.show_report(type(error).__name__, meanwhile, logging.ERROR)


def drain_outbox(
    store: ProfileStore,
    index: ProfileIndex,
    rules: IndexRules,
    at_once: int = AT_ONCE,
    seconds: float = math.inf,
) -> int:
    """Index what commits left in the outbox, `at_once` at a time or as many as memory has room for, past what the index
    refuses; gives how many it refused. Ends when the outbox is empty, or after the page in which so many `seconds` have
    passed.

    Raises ProfileIndexError when the index is away, StoreError when the store is: to be called again.
    """
    refused: set[OutboxEntry] = set()
    size = BatchSize(at_once)
    until = time.monotonic() + seconds
    while entries := _untried(store, refused, at_once):
        left = index_again(store, index, rules, entries, size)
        refused |= {entry for entry in entries if entry.fragment_id in left}
        if time.monotonic() >= until:
            break
    return len(refused)


def _untried(store: ProfileStore, refused: set[OutboxEntry], at_once: int) -> list[OutboxEntry]:
    # The oldest come first, so the refused ones are read each time. Twice as many behind them are taken as
    # there are, or a long row of refused ones would be read again for each page.
    return [entry for entry in store.outbox(at_once + 2 * len(refused)) if entry not in refused]
