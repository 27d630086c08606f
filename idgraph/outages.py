"""Telling of what is away once, not at each try, and once more when it is back."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class Outage:
    """One thing that may be away, as one thread sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._reported: str | None = None

    @property
    def is_on(self) -> bool:
        """Whether it failed when it was last tried."""
        return self._reported is not None

    def show_report(self, reason: str, meanwhile: str, level: int = logging.WARNING) -> None:
        """It failed for this reason; `meanwhile` says what holds until it is back."""
        if reason != self._reported:
            self._reported = reason
            log.log(level, "%s; %s", reason, meanwhile)

    def is_over(self) -> None:
        """It worked."""
        if self._reported is not None:
            self._reported = None
            log.warning("%s is back", self.name)
