"""What any bytes may come to: a value, or the error that says they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError


@contextmanager
def fits_or_is_reported() -> Iterator[None]:
    try:
        yield
    except EventError as error:
        if error.reason != DeadLetterReason.BAD_PAYLOAD:
            raise
