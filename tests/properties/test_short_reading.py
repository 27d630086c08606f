"""The short way to the persons of a page is the full one: it asks the store which identifiers are shared, and resolves those alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from idgraph.model.identity_events import IdentityEvent, PinDocument
from idgraph.model.tombstones import NO_EPOCH
from idgraph.projection.documents import documents_of
from merge.identity.persons import Found, Persons
from sinks.sqlite.profiles import SqliteProfileStore
from tests.contracts.implementations import hashed_name
from tests.folders import in_memory
from tests.lanes import examples
from tests.merge.identity.test_persons import ALWAYS_RETRACTING, Installation
from tests.merge.identity.test_resolve import EVENTS, PINS, RULES
from tests.support.memory.profiles import MemoryProfileStore


@pytest.mark.parametrize("is_embedded", [False, True])
@settings(max_examples=examples(100), deadline=None)
@given(RULES, EVENTS, PINS, st.data())
def test_the_short_way(is_embedded: bool, rules: Any, events: Any, pins: Any, data: st.DataObject) -> None:
    names = [each["id"] for each in events]
    gone = data.draw(st.sets(st.sampled_from(names), max_size=2)) if events else set()
    taken_back = [
        {"id": f"r-{each['id']}", "t": each["t"], "source": each["source"], "retracts": each["id"]}
        for each in events
        if each["id"] in gone
    ]
    can_retract = ALWAYS_RETRACTING if taken_back else []
    case = {"rules": rules, "events": [*events, *taken_back, *can_retract]}
    with in_memory() as folder:
        store = SqliteProfileStore(Path(folder) / "profiles.db", hashed_name)
        installation = Installation(case, store if is_embedded else MemoryProfileStore())
        arriving = [IdentityEvent.model_validate(each) for each in (*events, *taken_back)]
        decisions = [PinDocument.model_validate(each) for each in pins]
        order: list[IdentityEvent | PinDocument] = data.draw(st.permutations([*arriving, *decisions]))
        while order:
            some, order = order[: (size := data.draw(st.integers(1, 6)))], order[size:]
            installation.take(each for each in some if isinstance(each, IdentityEvent))
            installation.pin([each for each in some if isinstance(each, PinDocument)])
            if data.draw(st.booleans()):
                installation.projection.sweep()
            ids = list(installation.store.ids())
            if ids and data.draw(st.integers(0, 5)) == 0:
                erased = data.draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))
                installation.store.erase(erased, NO_EPOCH)
                ids += erased
            asked = data.draw(st.lists(st.sampled_from(ids), max_size=3)) if ids else []
            for wanted in (ids, asked):
                persons = Persons(installation.store, installation.rules)
                full, short = persons.around(wanted), persons.around(wanted, resolves_all=False)
                assert shown(installation, short) == shown(installation, full)
                alone = [each for each in short.persons() if not each.identifiers]
                event("short" if alone else "resolved")
        store.close()


def shown(installation: Installation, found: Found) -> Any:
    """All of persons but their identifiers."""
    persons = found.persons()
    return (
        [(each.id, each.version, [part.stored for part in each.members]) for each in persons],
        [each.state().encode() for each in persons],
        documents_of(persons, installation.index_rules),
        (found.unreadable, found.hubs, found.not_hubs),
    )
