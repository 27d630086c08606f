from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.attributes import DataType, TypeConflict
from idgraph.model.records import SchemaRecord
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import AttributeFilter, search_attributes
from metadata_service.attributes.discovery import apply_schema_changes
from metadata_service.storage.database import Database, open_database
from tests.folders import in_memory
from tests.lanes import examples
from tests.metadata_service.conftest import Running, sqlite_url

pytestmark = pytest.mark.slow


def change(path: str = "a.b", data_type: str = "string", **fields: Any) -> dict[str, Any]:
    return {"path": path, "data_type": data_type, "source": "payroll", "first_event": "file:f#1"} | fields


def patch(database: Database, *entries: Any) -> SchemaRecord:
    with database.write("pipeline") as edit:
        return apply_schema_changes(edit, entries)


def test_an_unknown_path_becomes_a_discovered_attribute(service: Running) -> None:
    defaults = {
        "classification": "confidential",
        "encryption": "protected",
        "authorization_level": 7,
        "indexable": False,
        "detection": "seal",
        "value_keys": ["seen"],
        "most_new_per_source_and_day": 50,
        "most_attributes": 70,
    }
    assert service.admin.put("/v1/discovery-defaults", json=defaults).json() == defaults
    answer = service.pipeline.patch("/v1/schema", json={"changes": [change()]})
    assert answer.json() == {
        "created": 1,
        "conflicted": 0,
        "proposed": 0,
        "unchanged": 0,
        "waiting": 0,
        "refused": 0,
        "problems": [],
        "snapshot_version": 2,
    }
    attribute = service.reader.get("/v1/attributes/a.b").json()
    assert attribute.pop("created").endswith("Z")
    for name in ("detection", "value_keys", "most_new_per_source_and_day", "most_attributes"):
        del defaults[name]
    assert attribute == defaults | {
        "path": "a.b",
        "name": "",
        "description": "",
        "owner": "",
        "tags": [],
        "data_type": "string",
        "source": "payroll",
        "first_event": "file:f#1",
        "status": "discovered",
        "identifiable": False,
        "policy": "latest",
        "sources": [],
        "version": 1,
        "conflicts": [],
        "proposal": None,
        "sealed_for_review": False,
    }


def test_who_first_sent_an_attribute_stays_known_when_it_is_declared(service: Running) -> None:
    assert service.pipeline.patch("/v1/schema", json={"changes": [change("a.b")]}).status_code == 200
    stated = {"path": "a.b", "data_type": "string"}
    declared = service.admin.put("/v1/attributes/a.b", json=stated).json()
    assert (declared["status"], declared["source"]) == ("active", "payroll")
    owned = service.admin.put("/v1/attributes/a.b", json=stated | {"source": "crm"}).json()
    assert owned["source"] == "crm"


def test_discovery_defaults_have_a_history_and_an_etag(service: Running) -> None:
    first = service.reader.get("/v1/discovery-defaults")
    known = {"If-Match": first.headers["ETag"]}
    changed = service.admin.put("/v1/discovery-defaults", json={"encryption": "protected"}, headers=known)
    assert changed.status_code == 200
    assert service.admin.put("/v1/discovery-defaults", json={}, headers=known).status_code == 412
    assert service.reader.get("/v1/snapshot").json()["defaults"]["encryption"] == "protected"
    again = service.admin.put("/v1/discovery-defaults", json={"encryption": "protected"})
    assert again.headers["ETag"] == changed.headers["ETag"]
    assert len(service.reader.get("/v1/changes").json()["items"]) == 1


def test_a_conflict_is_recorded_once(database: Database) -> None:
    patch(database, change())
    first = patch(database, change(data_type="integer", source="crm", first_event="file:g#2"))
    again = patch(database, change(data_type="integer", source="other"))
    assert (first.conflicted, again.conflicted, again.unchanged) == (1, 0, 1)
    assert again.snapshot_version == first.snapshot_version == 2
    with database.read() as session:
        attribute = search_attributes(session, AttributeFilter(), PageRequest(None, 10)).items[0]
    assert (attribute.data_type, attribute.version) == (DataType.STRING, 2)
    [conflict] = attribute.conflicts
    assert (conflict.data_type, conflict.source, conflict.first_event) == (
        DataType.INTEGER,
        "crm",
        "file:g#2",
    )


def test_an_object_at_the_path_of_a_value_is_a_conflict_whichever_comes_first(database: Database) -> None:
    later = {"source": "crm", "first_event": "file:g#2"}
    patch(
        database,
        change("a.text"),
        change("b.object.key"),
        change("d"),
        change("d.x.y"),
        change("e.x.y"),
        change("e"),
    )
    patch(database, change("a.text.x.mood", **later), change("b.object", **later), change("a.texts", **later))
    patch(database, change("a.text.x.other", source="third"), change("b.object.more", source="third"))
    with database.read() as session:
        found = search_attributes(session, AttributeFilter(), PageRequest(None, 100)).items
    conflicts = {each.path: [_values(one)[:3] for one in each.conflicts] for each in found if each.conflicts}
    seen_first, seen_later = ("object", "payroll", "file:f#1"), ("object", "crm", "file:g#2")
    assert conflicts == {
        "a.text": [seen_later],
        "b.object": [seen_first],
        "d": [seen_first],
        "e": [seen_first],
    }
    assert {each.path: each.version for each in found if each.conflicts} == {
        "a.text": 2,
        "b.object": 1,
        "d": 1,
        "e": 1,
    }


def _values(conflict: TypeConflict) -> tuple[Any, ...]:
    return tuple(conflict.model_dump().values())


def test_one_patch_is_one_version_of_everything(database: Database) -> None:
    types = ("string", "integer", "boolean", "string")
    answer = patch(database, *(change(data_type=seen) for seen in types), change("c"))
    assert (answer.created, answer.conflicted, answer.unchanged) == (2, 2, 1)
    assert answer.snapshot_version == database.revision().version == 1
    with database.read() as session:
        assert [
            found.version
            for found in search_attributes(session, AttributeFilter(), PageRequest(None, 10)).items
        ] == [
            1,
            1,
        ]
    assert patch(database, change(data_type="array"), change(data_type="number")).conflicted == 2
    with database.read() as session:
        assert search_attributes(session, AttributeFilter(), PageRequest(None, 1)).items[0].version == 2


def test_a_number_takes_integers(database: Database) -> None:
    patch(database, change(data_type="number"))
    assert patch(database, change(data_type="integer")).unchanged == 1


def test_bad_entries_are_reported_and_do_not_stop_the_others(service: Running) -> None:
    entries = [
        change("good"),
        change("x" * 1025),
        "jane@example.com",
        None,
        change(data_type="date"),
        change("_event.id"),
        change("nul\x00"),
        change("€" * 1024),
        change("also good", value="jane@example.com"),
        change(source=""),
        {"path": "a"},
        change("last"),
    ]
    answer = service.pipeline.patch("/v1/schema", json={"changes": entries}).json()
    assert (answer["created"], answer["refused"]) == (2, 10)
    assert [problem["index"] for problem in answer["problems"]] == list(range(1, 11))
    assert "jane" not in str(answer)
    assert service.pipeline.patch("/v1/schema", json={"changes": entries}).json()["unchanged"] == 2


def test_the_length_of_a_patch_is_bounded(service: Running) -> None:
    changes = [change(f"a{number}") for number in range(5001)]
    assert service.pipeline.patch("/v1/schema", json={"changes": changes}).status_code == 422
    assert service.pipeline.patch("/v1/schema", json={"changes": changes[1:]}).json()["created"] == 5000


def test_the_change_log_reports_of_discoveries(service: Running) -> None:
    service.pipeline.patch("/v1/schema", json={"changes": [change(), change("c")]})
    service.pipeline.patch("/v1/schema", json={"changes": [change(data_type="array")]})
    first = service.reader.get("/v1/changes", params={"limit": 2}).json()
    rest = service.reader.get("/v1/changes", params={"cursor": first["next"]}).json()
    assert [
        (line["subject"], line["action"], line["snapshot_version"], line["actor"])
        for line in first["items"] + rest["items"]
    ] == [
        ("a.b", "conflicted", 2, "the pipeline"),
        ("c", "discovered", 1, "the pipeline"),
        ("a.b", "discovered", 1, "the pipeline"),
    ]


Found = list[tuple[str, DataType]]


def known_types(batches: Sequence[Found]) -> dict[str, set[str]]:
    """What a new database knows after these PATCHes. An integer is a number, if it is known as one."""
    with in_memory() as folder:
        database = open_database(sqlite_url(Path(folder)))
        for batch in batches:
            patch(database, *(change(path, data_type) for path, data_type in batch))
        with database.read() as session:
            found = search_attributes(session, AttributeFilter(), PageRequest(None, 100)).items
        database.close()
    types: dict[str, set[str]] = {
        item.path: {item.data_type, *(seen.data_type for seen in item.conflicts)} for item in found
    }
    return {
        path: seen - ({DataType.INTEGER} if DataType.NUMBER in seen else set())
        for path, seen in types.items()
    }


@settings(max_examples=examples(30), deadline=None)
@given(
    found=st.lists(st.tuples(st.sampled_from(["a", "a.b", "c"]), st.sampled_from(DataType)), max_size=12),
    data=st.data(),
)
def test_any_order_duplication_and_split_finds_the_same(found: Found, data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(found), max_size=6)) if found else []
    shuffled = data.draw(st.permutations(found + again))
    size = data.draw(st.integers(1, 12))
    batches = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
    assert known_types(batches) == known_types([found])
