"""The use of a mapping spec by a flow: events, errors, and the fields of its input that the spec reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol

from pydantic import Field

from idgraph.model.documents import NAME_PATTERN, FrozenDocument

MOST_FIELDS = 200
MOST_USES = 500
_YEAR_9999 = 253_370_764_800_000


class SpecUse(FrozenDocument):
    """The use of one spec version for one source. Events are counted by a sample, and again when a micro-batch is."""

    spec: str | None = Field(pattern=NAME_PATTERN, description="Null for events that no spec maps.")
    version: int = Field(default=0, ge=0, lt=2**31)
    source: str = Field(pattern=NAME_PATTERN, description="The configured source.")
    events: int = Field(default=0, ge=0, lt=2**40)
    errors: int = Field(default=0, ge=0, lt=2**40, description="Events that were set aside.")
    last_used: int = Field(ge=0, lt=_YEAR_9999, description="Epoch milliseconds.")
    fields: dict[Annotated[str, Field(max_length=1000)], bool] = Field(
        default={},
        max_length=MOST_FIELDS,
        description="Paths of the input, `*` for an element of an array: whether the spec reads them.",
    )


def joined_fields(one: Mapping[str, bool], other: Mapping[str, bool]) -> dict[str, bool]:
    """The fields of both: one that is read in any event is read."""
    found = dict(one)
    for path, is_read in other.items():
        if path in found or len(found) < MOST_FIELDS:
            found[path] = is_read or found.get(path, False)
    return found


class SpecUses(Protocol):
    """Takes what flows made of specs."""

    def send_uses(self, uses: list[SpecUse]) -> None:
        """Raises MetadataError."""
        ...
