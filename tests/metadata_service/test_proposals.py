"""What detectors propose: kept on the attribute, sealed until an admin decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.attributes import AttributeMetadata
from idgraph.model.classification import SensitiveKind
from metadata_service.attributes.catalogue import find_attributes
from metadata_service.attributes.discovery import apply_schema_changes
from metadata_service.storage.database import Database, open_database
from tests.folders import in_memory
from tests.metadata_service.conftest import Running, sqlite_url

pytestmark = pytest.mark.slow


EMAIL = {"kind": "email", "classification": "confidential", "reason": "the name says so", "confidence": 0.9}
CARD = {"kind": "payment_card", "classification": "restricted", "reason": "check digit", "confidence": 0.8}


def change(proposal: dict[str, Any] | None = EMAIL, path: str = "a.b", **fields: Any) -> dict[str, Any]:
    seen = {"path": path, "data_type": "string", "source": "crm", "first_event": "file:f#1"}
    return {**seen, "proposal": proposal, **fields}


def patched(service: Running, *changes: dict[str, Any]) -> dict[str, Any]:
    answer = service.pipeline.patch("/v1/schema", json={"changes": list(changes)})
    assert answer.status_code == 200
    return dict(answer.json())


def attribute(service: Running, path: str = "a.b") -> dict[str, Any]:
    return dict(service.reader.get(f"/v1/attributes/{path}").json())


def test_what_looks_sensitive_is_sealed_until_an_admin_decides(service: Running) -> None:
    assert patched(service, change())["created"] == 1
    found = attribute(service)
    assert found["proposal"] == EMAIL
    sealed = ("confidential", "protected", 50, True, "discovered")
    keys = ("classification", "encryption", "authorization_level", "sealed_for_review", "status")
    assert tuple(found[key] for key in keys) == sealed
    served = service.reader.get("/v1/snapshot").json()["attributes"]
    assert served == [found]


def test_a_stronger_proposal_takes_the_place_of_a_weaker_one_only(service: Running) -> None:
    patched(service, change(None))
    assert patched(service, change())["proposed"] == 1
    assert patched(service, change(CARD))["proposed"] == 1
    assert patched(service, change(), change(CARD))["unchanged"] == 2
    found = attribute(service)
    assert (found["proposal"], found["classification"], found["version"]) == (CARD, "restricted", 3)
    assert found["indexable"] is False
    log = service.reader.get("/v1/changes?kind=attribute").json()["items"]
    assert [line["action"] for line in log] == ["proposed", "proposed", "discovered"]


def test_a_type_and_a_proposal_at_once_are_one_version(service: Running) -> None:
    patched(service, change(None))
    assert patched(service, change(CARD, data_type="integer"))["conflicted"] == 1
    found = attribute(service)
    assert (found["version"], found["proposal"], len(found["conflicts"])) == (2, CARD, 1)


def test_an_admin_confirms_or_refuses_and_detectors_are_not_heard_any_more(service: Running) -> None:
    for path, encryption in (("yes", "searchable"), ("no", "none")):
        patched(service, change(path=path))
        opened = service.admin.put(f"/v1/attributes/{path}", json={"path": path, "data_type": "string"})
        assert opened.status_code == 422, "by omission"
        stated = {"path": path, "data_type": "string", "encryption": encryption}
        decided = service.admin.put(f"/v1/attributes/{path}?reason=looked+at+it", json=stated).json()
        assert (decided["encryption"], decided["status"]) == (encryption, "active")
        assert (decided["sealed_for_review"], decided["proposal"]) == (False, EMAIL)
        assert patched(service, change(CARD, path=path))["unchanged"] == 1
        (last, *_) = service.reader.get(f"/v1/attributes/{path}/versions").json()["items"]
        assert (last["reason"], last["metadata"]["version"]) == ("looked at it", 2)


def test_detection_may_propose_only_or_be_off(service: Running) -> None:
    service.admin.put("/v1/discovery-defaults", json={"detection": "propose"})
    patched(service, change())
    found = attribute(service)
    assert (found["encryption"], found["proposal"], found["sealed_for_review"]) == ("none", EMAIL, False)
    service.admin.put("/v1/discovery-defaults", json={"detection": "off"})
    patched(service, change(path="c"))
    assert attribute(service, "c")["proposal"] is None


def test_what_the_defaults_seal_is_not_sealed_for_review(service: Running) -> None:
    service.admin.put("/v1/discovery-defaults", json={"encryption": "protected"})
    patched(service, change())
    assert attribute(service)["sealed_for_review"] is False


def test_a_level_that_seals_nothing_leaves_proposals_open(service: Running) -> None:
    levels = service.reader.get("/v1/classification-levels").json()
    levels["confidential"]["encryption"] = "none"
    assert service.admin.put("/v1/classification-levels", json=levels).json() == levels
    patched(service, change())
    found = attribute(service)
    assert (found["encryption"], found["classification"]) == ("none", "confidential")
    assert found["sealed_for_review"] is False


def test_a_proposal_that_is_too_long_is_refused(service: Running) -> None:
    answer = patched(service, change({**EMAIL, "reason": "x" * 201}), change({**EMAIL, "kind": "x"}, "c"))
    assert (answer["refused"], answer["created"]) == (2, 0)


proposals = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([kind.value for kind in SensitiveKind]),
        "classification": st.sampled_from(["internal", "confidential", "restricted"]),
        "reason": st.sampled_from(["name", "value"]),
        "confidence": st.sampled_from([0.5, 0.9]),
    }
)


@settings(max_examples=25, deadline=None)
@given(st.lists(proposals, min_size=1, max_size=6), st.data())
def test_whatever_order_proposals_come_in_the_same_policy_is_left(
    found: list[dict[str, Any]], data: st.DataObject
) -> None:
    def left(arrival: list[dict[str, Any]], database: Database) -> AttributeMetadata:
        for one in arrival:
            with database.write("pipeline") as edit:
                apply_schema_changes(edit, [change(one)])
        with database.read() as session:
            (known,) = find_attributes(session, ["a.b"])
        database.close()
        return known.model_copy(update={"version": 1, "created": None})

    with in_memory() as folder:
        one = left(found, open_database(sqlite_url(Path(folder) / "one")))
        other = left(data.draw(st.permutations(found)), open_database(sqlite_url(Path(folder) / "other")))
    assert one == other
