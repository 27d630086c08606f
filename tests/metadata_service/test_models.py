"""Models in the metadata service: bytes by digest, the list, definitions that name them, sandboxes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import ClashError
from metadata_service.behaviour import DERIVED_ATTRIBUTES
from metadata_service.models import get_model, list_models, model_content, save_model
from metadata_service.sandboxes.copying import create_sandbox
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.storage.database import Database
from metadata_service.storage.history import verify_history
from tests.metadata_service.conftest import Running
from tests.transforms.behaviour.onnx_models import digest, linear
from transforms.behaviour.models import interface_of

pytestmark = pytest.mark.slow

MODEL = linear([1, 2])


def post(service: Running, content: bytes, **params: str) -> httpx.Response:
    headers = {"Content-Type": "application/octet-stream"}
    return service.admin.post("/v1/models", content=content, params=params, headers=headers)


def put(service: Running, **model: Any) -> httpx.Response:
    stated = {"digest": digest(MODEL), "inputs": [{"path": "a"}, {"path": "b", "default": 1}]} | model
    body = {"name": "score", "path": "behaviour.score", "model": stated}
    return service.admin.put("/v1/derived-attributes/score", json=body)


def test_a_model_is_kept_by_its_digest(service: Running) -> None:
    made = post(service, MODEL, name="churn", reason="first")
    assert made.status_code == 201
    record = made.json()
    assert record | {"at": "", "snapshot_version": 0} == {
        "digest": digest(MODEL),
        "name": "churn",
        "bytes": len(MODEL),
        "nodes": 1,
        "inputs": [{"name": "x", "type": "float", "columns": 2}],
        "outputs": [{"name": "y", "type": "float", "columns": 1}],
        "used_by": [],
        "snapshot_version": 0,
        "at": "",
        "actor": "the admin",
        "reason": "first",
    }
    again = post(service, MODEL)
    assert (again.status_code, again.json()) == (200, record)
    clash = post(service, MODEL, name="other")
    assert clash.status_code == 409
    assert "there already" in clash.json()["detail"]
    for reader in (service.reader, service.pipeline):
        found = reader.get(f"/v1/models/{digest(MODEL)}")
        assert found.content == MODEL
        assert found.headers["ETag"] == f'"{digest(MODEL)}"'
        known = reader.get(f"/v1/models/{digest(MODEL)}", headers={"If-None-Match": found.headers["ETag"]})
        assert (known.status_code, known.content) == (304, b"")
    assert service.reader.get(f"/v1/models/{'0' * 64}").status_code == 404
    assert service.reader.get("/v1/models/churn").status_code == 422
    changes = service.admin.get("/v1/changes", params={"kind": "model"}).json()["items"]
    assert [(each["subject"], each["action"]) for each in changes] == [(digest(MODEL), "saved")]


def test_the_list_has_pages_and_the_definitions_in_force(service: Running) -> None:
    other = linear([1])
    for each in (MODEL, other):
        post(service, each)
    assert put(service).status_code == 201
    first = service.reader.get("/v1/models", params={"limit": 1}).json()
    rest = service.reader.get("/v1/models", params={"cursor": first["next"]}).json()
    items = [*first["items"], *rest["items"]]
    assert [each["digest"] for each in items] == sorted([digest(MODEL), digest(other)])
    assert {each["digest"]: each["used_by"] for each in items} == {
        digest(MODEL): ["score"],
        digest(other): [],
    }
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"no model", "the file is no valid ONNX model"), (b"", "Field required")],
)
def test_a_file_that_is_no_model_is_refused(service: Running, content: bytes, message: str) -> None:
    refused = post(service, content)
    assert refused.status_code == 422
    assert message in refused.json()["detail"]
    assert service.reader.get("/v1/models").json()["items"] == []


def test_a_definition_is_tried_before_it_is_saved(service: Running) -> None:
    missing = put(service)
    assert (missing.status_code, missing.json()["pointer"]) == (422, "/model/digest")
    post(service, MODEL)
    wrong = put(service, inputs=[{"path": "a"}])
    assert (wrong.status_code, wrong.json()["pointer"]) == (422, "/model/inputs")
    assert "the model has 2 columns, and 1 are named" in wrong.json()["detail"]
    assert put(service).status_code == 201
    assert service.reader.get("/v1/attributes/behaviour.score").json()["source"] == "derived:score"


def test_inputs_that_give_nothing_are_named(service: Running) -> None:
    post(service, MODEL)
    protected = {"path": "b", "data_type": "number", "encryption": "protected"}
    assert service.admin.put("/v1/attributes/b", json=protected).status_code == 201
    refused = put(service)
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/model/inputs/1/path")
    assert "policy protects b" in refused.json()["detail"]
    assert service.admin.put("/v1/attributes/c", json={"path": "c", "data_type": "number"}).status_code == 201
    saved = put(service, inputs=[{"path": "a"}, {"path": "c"}])
    assert saved.json()["warnings"] == ["no attribute is called a: its default counts"]


def test_a_model_is_retired_where_the_extra_is_missing(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(service, MODEL)
    active = put(service).json()
    del active["version"], active["warnings"]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    retired = service.admin.put("/v1/derived-attributes/score", json=active | {"status": "retired"})
    assert retired.status_code == 200


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_the_extra_is_named_where_it_is_missing(
    service: Running, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "onnxruntime":
        post(service, MODEL)
    monkeypatch.setitem(sys.modules, library, None)
    refused = post(service, MODEL) if library == "onnx" else put(service)
    assert refused.status_code == 422
    assert "pip install 'idgraph[models]'" in refused.json()["detail"]


def test_models_are_part_of_history_and_never_change(database: Database) -> None:
    with database.write("ann", "why") as edit:
        assert save_model(edit, digest(MODEL), MODEL, interface_of(MODEL), "churn")
    with database.write("bob") as edit:
        assert not save_model(edit, digest(MODEL), MODEL, interface_of(MODEL))
    with database.write("bob") as edit, pytest.raises(ClashError):
        save_model(edit, digest(MODEL), MODEL, interface_of(MODEL), "other")
    with database.read() as session:
        assert model_content(session, digest(MODEL)) == MODEL
        with pytest.raises(KeyError):
            model_content(session, "0" * 64)
        found = get_model(session, digest(MODEL), DERIVED_ATTRIBUTES.active(session))
        assert (found.actor, found.reason, found.name) == ("ann", "why", "churn")
        assert list_models(session, PageRequest(None, 10), ()).items == [found]
        report = verify_history(session, b"")
        assert (report.entries, report.broken_line) == (1, None)


def test_a_sandbox_has_the_models_in_use(service: Running, tmp_path: Path) -> None:
    post(service, MODEL, name="churn")
    post(service, linear([1]))
    put(service)
    folder = SandboxFolder(tmp_path / "sandboxes")
    create_sandbox(service.database, folder, "trial", "ann", "why")
    with folder.opened("trial") as copy, copy.read() as session:
        [found] = list_models(session, PageRequest(None, 10), DERIVED_ATTRIBUTES.active(session)).items
        assert (found.name, found.used_by) == ("churn", ["score"])
        assert model_content(session, digest(MODEL)) == MODEL
