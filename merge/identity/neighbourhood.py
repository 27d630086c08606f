"""The neighbourhood of fragments: all that share an identifier with them, with those, and so on.

An identifier that more fragments carry than its hub limit allows joins nothing, so nothing is read behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import DamagedStateError
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord, Pins
from idgraph.model.store import FragmentStore
from idgraph.model.timelines import Timelines
from merge.codec import may_keep_events
from merge.fragments import FragmentState
from merge.identity.components import Member, pins_of
from merge.identity.resolve import Decision, Pin, root_of
from merge.identity.rules import Rules

UNLIMITED = 1 << 31
NOTHING_KNOWN: Mapping[str, list[str]] = MappingProxyType({})


class Carriers(NamedTuple):
    """By identifier the fragments that carry it; `hubs` are identifiers that more carry than their hub limit allows: of
    these, some fragments."""

    carriers: dict[str, Collection[str]]
    hubs: set[str]


class PersonStore(FragmentStore, Timelines, Pins, Protocol):
    """The store that persons are read from."""


def too_many(rules: Rules, namespace: str) -> int:
    """As many fragments carry an identifier of a namespace that joins nothing."""
    limit = rules.hub_limit(namespace)
    return UNLIMITED if limit is None else limit + 2


def carriers_of(
    store: FragmentStore,
    rules: Rules,
    identifiers: Iterable[str],
    known: Mapping[str, Collection[str]] = NOTHING_KNOWN,
) -> Carriers:
    """The fragments that carry some identifiers, as they are stored. Raises StoreError. `known` as of `Persons.around`."""
    by_limit: dict[int, list[str]] = defaultdict(list)
    limit_of = cache(partial(too_many, rules))
    result = Carriers({}, set())
    for text in identifiers:
        # Most are no hub by whatever limit.
        if (carriers := known.get(text)) is not None and len(carriers) <= rules.least_hub_limit:
            result.carriers[text] = carriers
        else:
            by_limit[limit_of(text.partition(":")[0])].append(text)
    for limit, texts in by_limit.items():
        result.carriers.update({each: known[each] for each in texts if each in known})
        if unread := [each for each in texts if each not in known]:
            result.carriers.update(store.find_all(unread, limit))
        for text in [each for each in texts if len(result.carriers.get(each, ())) >= limit]:
            if _counted(result.carriers[text], rules) < limit:
                result.carriers.update(store.find_all([text], UNLIMITED))
            if _counted(result.carriers[text], rules) >= limit:
                result.hubs.add(text)
    return result


def _counted(fragment_ids: Iterable[str], rules: Rules) -> int:
    return rules.counted(list(map(Identifier.parse, fragment_ids)))


class Neighbourhood:
    """Fragments and all that share identifiers with them, which are no hubs."""

    def __init__(
        self,
        store: PersonStore,
        rules: Rules,
        name: Callable[[str], str],
        size: BatchSize,
        supposed: Sequence[PinRecord],
        known: Mapping[str, Collection[str]],
        is_short: bool = False,
    ) -> None:
        """With `is_short` the store may say which identifiers are shared: the others join nothing, and nobody asks for
        them."""
        self._store = store
        self._is_short = is_short
        self._supposed = supposed
        self._known_carriers = known
        self._rules = rules
        self._name = name
        self._size = size
        self._members: dict[str, Member] = {}
        self._above: dict[str, str] = {}
        self._asked: set[str] = set()
        self._pinned_together: list[tuple[str, str]] = []
        self._first_carrier: dict[str, str] = {}
        self.hubs: set[Identifier] = set()
        self.stored_hubs: set[str] = set()
        self.taken_back: set[str] = set()
        self.pins: dict[Identifier, list[Pin]] = defaultdict(list)
        self.unreadable: dict[str, str] = {}
        self.alone: list[Member] = []
        """Readable fragments that share nothing, were never part of another profile, and have no decision on them."""

    def extend(self, ids: Iterable[str]) -> None:
        """Read these fragments and all around them."""
        seen = set(waiting := list(dict.fromkeys(ids)))
        while waiting:
            page, waiting = waiting[: self._size.present], waiting[self._size.present :]
            carried = self._read(page)
            # The profile that a fragment leaves changes too.
            former = {self._members[each].stored.profile_id for each in page if each in self._members}
            waiting += sorted(former - seen - {""})
            seen |= former
            carried += self._pinned(carried)
            above = self._above
            for identifier, carriers in self._carriers(carried).items():
                first = self._first_carrier.get(name := self._name(identifier))
                for carrier in carriers:
                    if carrier not in seen:
                        seen.add(carrier)
                        waiting.append(carrier)
                    if carrier not in above:
                        above[carrier] = carrier
                    if first is None:
                        first = self._first_carrier[name] = carrier
                    if above[carrier] != above[first]:
                        self._join(first, carrier)

    def _read(self, ids: Sequence[str]) -> list[str]:
        """Read fragments; the identifiers that were not known before."""
        found: set[str] = set()
        stored, shared = (
            self._store.read_with_shared(ids) if self._is_short else (self._store.read(ids), None)
        )
        self._size.weighed(len(ids), sum([len(each.state) for each in stored.values()]))
        if shared is not None:
            self._known_carriers = shared.carriers
            found.update(shared.identifiers)
        for each in stored.values():
            try:
                state = FragmentState.checked(each.state)
                if (
                    shared is not None
                    and each.id not in shared.fragments
                    and not (each.profile_id or may_keep_events(each.state))
                ):
                    self.alone.append(Member(each, state))
                    continue
                names, taken_back = state.names_and_others(each.id)
            except DamagedStateError:
                self.unreadable[each.id] = "its stored state is damaged"
                continue
            self._members[each.id] = Member(each, state)
            self._above.setdefault(each.id, each.id)
            if taken_back:
                self.taken_back |= taken_back
            if shared is not None:
                found |= taken_back
                continue
            names |= taken_back
            found |= {each.id, *names}
            found.update(map(self._name, names))
        found -= self._asked
        self._asked |= found
        return sorted(found)

    def _pinned(self, identifiers: Sequence[str]) -> list[str]:
        """Note the decisions on these identifiers; those that are pinned to them and were not known before."""
        pinned: set[str] = set()
        asked = set(identifiers)
        records = self._store.pins_of(identifiers) if identifiers else []
        records += [each for each in self._supposed if not asked.isdisjoint(each[:2])]
        for each in records:
            for pin in pins_of(each, self._rules, self._name):
                self.pins[pin.pair.low].append(pin)
                if pin.decision is Decision.ALWAYS:
                    one, other = map(str, pin.pair)
                    self._pinned_together.append((one, other))
                    pinned.update((each.low, each.high, one, other))
        pinned -= self._asked
        self._asked |= pinned
        return [*sorted(pinned), *self._pinned(sorted(pinned))] if pinned else []

    def _carriers(self, identifiers: Sequence[str]) -> dict[str, Collection[str]]:
        found = carriers_of(self._store, self._rules, identifiers, self._known_carriers)
        self.hubs.update(Identifier.parse(self._name(text)) for text in found.hubs)
        self.stored_hubs.update(found.hubs)
        return {text: carriers for text, carriers in found.carriers.items() if text not in found.hubs}

    def _join(self, one: str, other: str) -> None:
        self._above[root_of(self._above, other)] = root_of(self._above, one)

    def components(self) -> list[list[Member]]:
        """The readable fragments of each component, without those in `alone`."""
        for one, other in self._pinned_together:
            if one in self._first_carrier and other in self._first_carrier:
                self._join(self._first_carrier[one], self._first_carrier[other])
        found: dict[str, list[Member]] = defaultdict(list)
        for fragment_id, member in self._members.items():
            found[root_of(self._above, fragment_id)].append(member)
        return list(found.values())
