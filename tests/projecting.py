"""The projection, as commands and flows run it once."""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.store import ProfileStore
from idgraph.projection.projection import AT_ONCE, Projection


def sweep(store: ProfileStore, index: ProfileIndex, rules: IndexRules, at_once: int = AT_ONCE) -> int:
    """Project all that waits; gives how many the index refused."""
    return Projection(store, index, lambda: rules, at_once).sweep().left()


def project(store: ProfileStore, index: ProfileIndex, rules: IndexRules, ids: Iterable[str]) -> set[str]:
    """Project these fragments; gives those that the index refused."""
    return {*Projection(store, index, lambda: rules).project(ids).refused}
