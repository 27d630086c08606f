"""Following up on what an index that was away did not take, beside the flow and while it is idle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ingestion.commit_stage import drain_outbox
from merge.index import ProfileIndex
from merge.store import OutboxEntry, ProfileStore
from model.errors import IdgraphError

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
MOST_LOOKS = 10
"""Looks at a filled outbox after which it is drained whatever its oldest entry."""


class OutboxDrainer:
    """A thread that drains the outbox when its oldest entry has stayed for two looks: a younger one is
    most likely being indexed by the task that wrote it. Use as a context manager."""

    def __init__(
        self, store: ProfileStore, index: ProfileIndex, policy: Callable[[], Callable[[str], bool]]
    ) -> None:
        """`policy` gives, at each drain, what says which paths may be indexed."""
        self._store = store
        self._index = index
        self._policy = policy
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
        while not self._stop.wait(POLL_SECONDS):
            try:
                oldest = self._store.outbox(1)
            except IdgraphError as error:
                log.warning("the outbox cannot be read: %s", error)
                continue
            looks = looks + 1 if oldest else 0
            # A fragment that is written all the time has another version at each look.
            if oldest and (oldest == seen or looks >= MOST_LOOKS):
                self._drain()
                looks = 0
            seen = oldest

    def _drain(self) -> None:
        try:
            drain_outbox(self._store, self._index, self._policy())
        except IdgraphError as error:
            log.warning("the outbox waits: %s", error)
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a profile. A thread that dies
            # in silence would leave profiles unfound for good.
            log.log(logging.ERROR, "the outbox waits: %s", type(error).__name__)
