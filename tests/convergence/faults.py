"""Faults of a site's real stores: other writers come in between a read and its write, or servers are away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum
from typing import Any, TypeVar

from idgraph.model.errors import IdgraphError, KeyServiceError, ProfileIndexError, StoreError, UnstorableError
from idgraph.model.index import IndexDocument
from idgraph.model.store import FragmentWrite
from idgraph.model.tombstones import FragmentSummary
from tests.convergence.adapters import Adapters, provider
from transforms.privacy.keys import NotPicklable, Secret, WrappedKey

T = TypeVar("T")


class Answer(IntEnum):
    """How a call ends; where it fails, after what it has done."""

    GIVEN = 0
    NOTHING_DONE = 1
    HALF_DONE = 2
    ALL_DONE = 3
    """Only the answer is lost."""


class Faults:
    """Of one site, whatever it has open."""

    def __init__(self) -> None:
        self.between: Callable[[], object] | None = None
        """Run once, between what somebody reads and what he writes."""
        self.index_away = False
        self.keys_away = False
        """No data key can be deleted."""
        self.store_calls, self.key_calls = _Calls(), _Calls()
        self.service_calls = 0
        """So many calls of the service that wraps data keys fail."""
        self.refused: frozenset[str] = frozenset()
        """Fragments that the store can never take."""
        self.names_refused = False
        """Whether it says which, and takes the rest."""

    def end(self) -> None:
        """All that was away is back."""
        self.store_calls.answers.clear()
        self.key_calls.answers.clear()
        self.service_calls = 0
        self.refused = frozenset()

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
        store, calls = adapters.store, self.store_calls
        write = calls.lossy(self._refusing(store.write))
        plain_withdraw, erase = store.withdraw, store.erase
        withdraw = calls.lossy(lambda versions: plain_withdraw(dict(versions)))

        def met_write(writes: Sequence[FragmentWrite]) -> set[str]:
            self.meet()
            return write(writes)

        def met_withdraw(versions: Mapping[str, int]) -> set[str]:
            self.meet()
            return withdraw([*versions.items()])

        def lossy_erase(ids: Sequence[str], until: int) -> list[FragmentSummary]:
            return calls.lossy(lambda some: erase(some, until))(ids)

        _replace(store, write=met_write, withdraw=met_withdraw, erase=lossy_erase)
        for name in ("settle", "finish", "forget_withdrawn"):
            _replace(store, **{name: calls.lossy(getattr(store, name))})
        for name in ("read", "read_with_tombstones", "read_with_shared", "tombstones"):
            _replace(store, **{name: calls.unanswered(getattr(store, name))})

    def _refusing(
        self, write: Callable[[Sequence[FragmentWrite]], set[str]]
    ) -> Callable[[Sequence[FragmentWrite]], set[str]]:
        def write_the_rest(writes: Sequence[FragmentWrite]) -> set[str]:
            refused = self.refused & {each.id for each in writes}
            if not refused:
                return write(writes)
            if not self.names_refused:
                raise UnstorableError("refused")
            others = write([each for each in writes if each.id not in refused])
            raise UnstorableError("refused", refused, frozenset(others))

        return write_the_rest

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
        keys, calls = adapters.key_store, self.key_calls
        delete, hold, put_absent = keys.delete, keys.hold, keys.put_absent

        def reached_delete(ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
            _refuse(self.keys_away, StoreError)
            return calls.lossy(lambda some: delete(some, kept))(ids)

        def met_hold(ids: Sequence[str]) -> AbstractContextManager[dict[str, WrappedKey]]:
            # While the keys are held everybody else waits for them.
            self.meet()
            return calls.lossy_context(hold(ids))

        def lossy_put(made: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
            return calls.lossy(lambda some: put_absent(dict(some)))([*made.items()])

        _replace(keys, delete=reached_delete, hold=met_hold, put_absent=lossy_put)
        _replace(keys, get=calls.unanswered(keys.get))


class ReachedKeys(NotPicklable):
    """The keyring, behind a service that may be away."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def wrap(self, data_key: Secret, context: bytes) -> WrappedKey:
        self._reach()
        return provider().wrap(data_key, context)

    def unwrap(self, key: WrappedKey, context: bytes) -> Secret:
        self._reach()
        return provider().unwrap(key, context)

    def purpose_key(self, purpose: str) -> bytes:
        return provider().purpose_key(purpose)

    def refresh(self) -> None:
        provider().refresh()

    def prepare(self) -> None:
        self._reach()
        provider().prepare()

    def _reach(self) -> None:
        if self._faults.service_calls:
            self._faults.service_calls -= 1
            raise KeyServiceError("is away")


class _Calls:
    """Of one server: how the next of them end. What it asks itself meanwhile is none."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._is_inside = False

    def lossy(self, do: Callable[[Sequence[Any]], T]) -> Callable[[Sequence[Any]], T]:
        """Fails, maybe, when all or half of what is asked is done."""

        def call(given: Sequence[Any]) -> T:
            answer = self._answer()
            if answer is Answer.HALF_DONE:
                self._run(do, given[: len(given) // 2])
            elif answer is not Answer.NOTHING_DONE:
                done = self._run(do, given)
                if answer is Answer.GIVEN:
                    return done
            raise StoreError("is away")

        return call

    @contextmanager
    def lossy_context(self, context: AbstractContextManager[T]) -> Iterator[T]:
        """Fails, maybe, at its begin or its end."""
        answer = self._answer()
        if answer is Answer.NOTHING_DONE:
            raise StoreError("is away")
        was_inside, self._is_inside = self._is_inside, True
        try:
            with context as value:
                yield value
        finally:
            self._is_inside = was_inside
        if answer is not Answer.GIVEN:
            raise StoreError("is away")

    def unanswered(self, read: Callable[[Any], T]) -> Callable[[Any], T]:
        """Fails, maybe."""

        def call(given: Any) -> T:
            if self._answer() is not Answer.GIVEN:
                raise StoreError("is away")
            return self._run(read, given)

        return call

    def _answer(self) -> Answer:
        return self.answers.pop() if self.answers and not self._is_inside else Answer.GIVEN

    def _run(self, do: Callable[[Any], T], given: Any) -> T:
        was_inside, self._is_inside = self._is_inside, True
        try:
            return do(given)
        finally:
            self._is_inside = was_inside


def _replace(owner: object, **methods: Callable[..., object]) -> None:
    for name, method in methods.items():
        setattr(owner, name, method)


def _refuse(is_away: bool, error: type[IdgraphError]) -> None:
    if is_away:
        raise error("is away")
