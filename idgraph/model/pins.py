"""Pins: decisions of persons on pairs of identifiers, as a store keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class PinRecord(NamedTuple):
    """One decision, kept for good: `decision` is `always`, `never`, or `none`, which takes an earlier one back. `low` is
    the smaller identifier, both in the form in which they are stored. `at_ms` is in epoch milliseconds."""

    low: str
    high: str
    at_ms: int
    decision: str
    who: str = ""
    why: str = ""


class Pins(Protocol):
    """The decisions of one store. Every method blocks, and raises `StoreError` as those of `FragmentStore`."""

    def add_pins(self, pins: Sequence[PinRecord]) -> None:
        """Keep decisions; one that is there already changes nothing. Durable when it returns."""
        ...

    def pins_of(self, identifiers: Sequence[str]) -> list[PinRecord]:
        """All decisions on pairs with one of these identifiers, in no order."""
        ...

    def pins(self) -> Iterator[PinRecord]:
        """All decisions, in an order of the store's own."""
        ...

    def drop_pins(self, identifiers: Sequence[str]) -> None:
        """Forget all decisions on pairs with one of these identifiers, of persons who were erased."""
        ...
