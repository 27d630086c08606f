"""The cost of persons, counted: each component is given its own, and is read a fixed number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from idgraph import native
from idgraph.jobs.reconcile import IndexReconciliation
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_events import IdentityEvent
from idgraph.model.jobs import Progress
from idgraph.model.pins import PinRecord
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.projection.documents import IndexPolicy
from ingestion.stages.resolve import JoinedFragment, resolved_profiles
from merge.fragments import FragmentState
from merge.identity import components, persons, resolve
from merge.identity.persons import Persons
from merge.identity.resolve import Decision
from profile_service.links import Links
from tests.merge.identity.test_persons import Installation
from tests.retail import Pipeline

RULES = {"namespaces": {"user": {"priority": 1, "unique": True}, "device": {"owner": "first"}}}


def installation_of(*shown: Sequence[str], **rules: Any) -> Installation:
    installation = Installation({"rules": {**RULES, **rules}})
    installation.take(
        IdentityEvent.model_validate(
            {
                "id": f"e{place}",
                "t": "2026-03-02T09:00:00Z",
                "source": "web",
                "ids": [name.split(":") for name in names],
            }
        )
        for place, names in enumerate(shown)
    )
    return installation


def chain(length: int) -> Installation:
    """Persons that rules keep apart, each of whom shares a device with the next one."""
    return installation_of(*([f"user:{k}", f"device:{k}", f"device:{k + 1}"] for k in range(length)))


def counting(through: Callable[..., Any], sizes: list[int], place: int = 0) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        sizes.append(len(arguments[place]))
        return through(*arguments)

    return counted


def test_a_component_is_given_its_own_pins_and_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 20
    installation = installation_of(
        *([f"user:{k}", f"device:{k}"] for k in range(count)),
        *([f"user:{k}x{place}", f"phone:{k}"] for k in range(count) for place in range(4)),
        hub_limit=2,
    )
    store = installation.store
    store.add_pins([PinRecord(f"device:{k}", f"user:{k}", 1, "never") for k in range(count)])
    pins: list[int] = []
    hubs: list[int] = []
    monkeypatch.setattr(components, "resolve", counting(counting(resolve.resolve, pins, 2), hubs, 4))
    ids = list(store.ids())
    assert len(Persons(store, installation.rules).around(ids).components) == 5 * count
    assert (sum(pins), sum(hubs)) == (count, 4 * count)
    pins.clear()
    rows = [JoinedFragment(place, each, ()) for place, each in enumerate(ids)]
    assert len(list(resolved_profiles(store, rows, installation.rules, str))) == 5 * count
    assert sum(pins) == count


@pytest.mark.parametrize("remembered", [1000, 10])
def test_a_scan_reads_a_component_again_for_those_alone_that_it_cannot_remember(
    remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persons, "_MOST_AHEAD", remembered)
    length = 60
    installation = chain(length)
    found = Persons(installation.store, installation.rules)
    whole = found.around(list(installation.store.ids())).persons()
    assert len(whole) == length
    read: list[int] = []
    monkeypatch.setattr(installation.store, "read", counting(installation.store.read, read))
    scanned = [each for page in found.scan(page=3) for each in page.persons]
    assert sum(read) <= 2 * length + length * length / remembered
    for one, other in zip(scanned, whole, strict=True):
        assert (one.id, one.identifiers) == (other.id, other.identifiers)
        assert [each.stored for each in one.members] == [each.stored for each in other.members]
        assert one.state().encode() == other.state().encode()


def test_a_reconciliation_reads_a_component_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    length = 60
    installation = chain(length)
    installation.projection.sweep()
    policy = IndexPolicy(installation.index_rules, "")
    job = IndexReconciliation(installation.store, installation.index, lambda: policy, page=3)
    read: list[int] = []
    monkeypatch.setattr(installation.store, "read", counting(installation.store.read, read))
    progress = Progress()
    assert len(list(job.pages(progress, {}))) > length / 3
    assert (progress.counts["stored"], progress.counts["indexed"]) == (length, length)
    assert sum(read) <= 4 * length


def test_a_person_that_changes_before_her_page_is_read_again() -> None:
    installation = chain(8)
    pages = Persons(installation.store, installation.rules).scan(page=2)
    next(pages)
    installation.take(
        [
            IdentityEvent.model_validate(
                {
                    "id": "late",
                    "t": "2026-03-02T09:00:00Z",
                    "source": "crm",
                    "ids": [["user", "4"], ["phone", "1"]],
                }
            )
        ]
    )
    installation.store.erase(["user:6"], 0)
    found = {each.id: each for page in pages for each in page.persons}
    assert list(found) == ["user:2", "user:3", "user:4", "user:5", "user:7"]
    assert "phone:1" in map(str, found["user:4"].identifiers)
    assert found["user:4"].state().encode() == installation.store.read(["user:4"])["user:4"].state


def test_a_pin_on_a_hub_reads_the_other_end_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 50
    installation = installation_of(*([f"user:{k}", "phone:1"] for k in range(count)), hub_limit=3)
    store, index = installation.store, installation.index
    rules = installation.index_rules.identity
    reader = Pipeline(
        tmp_path, store=store, index=index, snapshot=MetadataSnapshot(version=1, identity_rules=rules)
    ).reader()
    installation.projection.sweep()
    links = Links(store, reader)
    read: list[int] = []
    monkeypatch.setattr(store, "read", counting(store.read, read))
    hub = links.stored(Identifier("phone", "1"))
    user = links.stored(Identifier("user", "7"))
    assert hub is not None
    assert user is not None
    assert (hub.is_hub, user.is_hub) == (True, False)
    links.keep(links.decide([(hub, user, Decision.ALWAYS)], 1, "ann", ""))
    assert [each.fragment_id for each in store.outbox()] == ["user:7"]
    assert sum(read) <= 2
    installation.check_index()
    assert Identifier("phone", "1") in installation.persons()["user:7"]


def test_many_fragments_are_joined_by_native_code_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.states is None:
        pytest.skip("there is no native code")
    installation = installation_of(*([f"device:{k}", "user:1"] for k in range(201)))
    (person,) = Persons(installation.store, installation.rules).around(["device:0"]).persons()
    assert len(person.members) == 201
    decoded: list[int] = []
    monkeypatch.setattr(FragmentState, "decode", counting(FragmentState.decode, decoded))
    state = person.state()
    assert len(decoded) <= 201 / 8
    assert state.names() == {"user:1", *(f"device:{k}" for k in range(201))}
