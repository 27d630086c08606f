"""What others do to a site's real stores: they come in between a read and its write, or are away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from merge.index import IndexDocument
from merge.store import FragmentWrite
from model.errors import IdgraphError, ProfileIndexError, StoreError
from tests.convergence.adapters import Adapters
from transforms.keys import WrappedKey

T = TypeVar("T")


class Faults:
    """Of one site, whatever it has open."""

    def __init__(self) -> None:
        self.between: Callable[[], object] | None = None
        """Run once, between what somebody reads and what he writes."""
        self.index_away = False
        self.keys_away = False
        """No data key can be deleted."""

    def disturb(self, adapters: Adapters) -> None:
        """Let them be felt by whoever uses these from now on."""
        self._disturb_store(adapters)
        self._disturb_index(adapters)
        self._disturb_keys(adapters)

    def meet(self) -> None:
        """Let the other one in, if nobody has yet."""
        between, self.between = self.between, None
        if between is not None:
            between()

    def _disturb_store(self, adapters: Adapters) -> None:
        write, withdraw = adapters.store.write, adapters.store.withdraw

        def met_write(writes: Sequence[FragmentWrite]) -> set[str]:
            self.meet()
            return write(writes)

        def met_withdraw(versions: Mapping[str, int]) -> set[str]:
            self.meet()
            return withdraw(versions)

        _replace(adapters.store, write=met_write, withdraw=met_withdraw)

    def _disturb_index(self, adapters: Adapters) -> None:
        put, erase = adapters.index.put, adapters.index.erase

        def reached_put(documents: Sequence[IndexDocument]) -> dict[str, str]:
            _refuse(self.index_away, ProfileIndexError)
            return put(documents)

        def reached_erase(versions: Mapping[str, int]) -> int:
            _refuse(self.index_away, ProfileIndexError)
            return erase(versions)

        _replace(adapters.index, put=reached_put, erase=reached_erase)

    def _disturb_keys(self, adapters: Adapters) -> None:
        delete, hold = adapters.key_store.delete, adapters.key_store.hold

        def reached_delete(ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
            _refuse(self.keys_away, StoreError)
            return delete(ids, kept)

        def met_hold(ids: Sequence[str], work: Callable[[dict[str, WrappedKey]], T]) -> T:
            # While the keys are held everybody else waits for them.
            self.meet()
            return hold(ids, work)

        _replace(adapters.key_store, delete=reached_delete, hold=met_hold)


def _replace(owner: object, **methods: Callable[..., object]) -> None:
    for name, method in methods.items():
        setattr(owner, name, method)


def _refuse(is_away: bool, error: type[IdgraphError]) -> None:
    if is_away:
        raise error("is away")
