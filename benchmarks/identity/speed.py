"""Persons resolved per second: in memory, and out of a store of one size and of ten times that size.

A person has three fragments: a user, and two devices that share the user's e-mail address.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import DEFAULT_RULES
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import NEW, FragmentWrite, ProfileStore
from merge.fragments import FragmentState
from merge.identity.evidence import Moment, SeenEvent, links
from merge.identity.persons import Persons
from merge.identity.resolve import resolve
from merge.identity.rules import Rules
from sinks.sqlite.profiles import SqliteProfileStore

PERSONS_RESOLVED = 20_000
READ = 1_000
SINGLES = 200
BATCH = 1_000
GROWTH = 10
_SPEC = SpecRef("bench", 1)


def measure(folder: Path, fragments: int) -> dict[str, Any]:
    """Links/s of `resolve`, and microseconds for each fragment that `Persons` reads from stores of two sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"resolve_links_per_second": round(_resolve_rate())}
    for size in (fragments // GROWTH, fragments):
        store = SqliteProfileStore(folder / f"{size}.db")
        try:
            fill(store, size // 3)
            figures |= {f"{name}, {size} fragments": value for name, value in _read(store, size // 3).items()}
        finally:
            store.close()
    return figures


def events(persons: int) -> Iterator[tuple[Identifier, Identifier]]:
    """The identifiers of each event."""
    for number in range(persons):
        email = Identifier("email", f"{number}@x.org")
        yield Identifier("user_id", f"{number + 1}"), email
        yield Identifier("device_id", f"phone-{number}"), email
        yield Identifier("device_id", f"tablet-{number}"), email


def _resolve_rate() -> float:
    shown = [
        SeenEvent(Moment(number, "bench", f"{number}"), pair)
        for number, pair in enumerate(events(PERSONS_RESOLVED))
    ]
    evidence = links(item for event in shown for item in event.sightings().items())
    first = {each: event.moment.ordinal for event in shown for each in event.identifiers}
    rules = Rules(DEFAULT_RULES)
    started = time.process_time()
    resolution = resolve(evidence, first, (), rules)
    seconds = time.process_time() - started
    assert len(resolution.partition) == PERSONS_RESOLVED
    return len(evidence) / seconds


def state_of(own: Identifier, other: Identifier, number: int) -> FragmentState:
    """The state after one event of a fragment that shows another identifier beside its own."""
    origin = Origin(Stamp(0, 1_709_251_200_000 + number, "bench", f"{number}"), _SPEC)
    state = FragmentState()
    values = {"activity.platform": Register(origin, Kind.PLAIN, "web")}
    state.apply(FragmentChange(str(own), origin, values, (own, other), None, {}))
    state.normalise()
    return state


def fill(store: ProfileStore, persons: int) -> None:
    """Write the fragments of so many persons, none projected."""
    write(store, events(persons))


def write(store: ProfileStore, shown: Iterable[tuple[Identifier, Identifier]]) -> None:
    """Write new fragments, each with what its event shows."""
    writes: list[FragmentWrite] = []
    for number, (own, other) in enumerate(shown):
        names = frozenset((str(own), str(other)))
        writes.append(FragmentWrite(str(own), NEW, state_of(own, other, number).encode(), names))
        if len(writes) == BATCH:
            store.write(writes)
            writes = []
    if writes:
        store.write(writes)


def _read(store: SqliteProfileStore, persons: int) -> dict[str, float]:
    chance = random.Random(7)
    persons_of = Persons(store, Rules(DEFAULT_RULES))
    some = [f"user_id:{number + 1}" for number in chance.sample(range(persons), min(READ, persons))]
    started = time.process_time()
    found = persons_of.around(some)
    together = time.process_time() - started
    assert {len(each.members) for each in found.persons()} == {3}
    started = time.process_time()
    for each in some[:SINGLES]:
        persons_of.around((each,))
    single = time.process_time() - started
    return {
        "cpu_us_per_fragment_of_1000_persons": round(1e6 * together / (3 * len(some)), 1),
        "cpu_us_per_fragment_one_person_at_once": round(1e6 * single / (3 * len(some[:SINGLES])), 1),
    }
