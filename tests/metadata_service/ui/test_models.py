"""Models: a file is added, refused with its problem, listed, and named by a derived attribute."""

from __future__ import annotations

import html
import json

import httpx
import pytest

from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import Person, Site
from tests.metadata_service.ui.test_definitions import fields
from tests.transforms.behaviour.onnx_models import digest, linear

pytestmark = pytest.mark.slow

MODEL = linear([1, 2])


def upload(person: Person, content: bytes, token: str | None = None, **params: str) -> httpx.Response:
    headers = {"X-CSRF-Token": person.csrf() if token is None else token}
    return person.client.post("/ui/models", content=content, params=params, headers=headers)


def test_a_model_is_added_listed_and_named(site: Site) -> None:
    person = site.signed_in()
    assert "No models yet" in person.get("/ui/models")
    added = upload(person, MODEL, name="churn <b>", reason="first")
    assert (added.status_code, added.url.query) == (200, f"added={digest(MODEL)}".encode())
    for text in ("Added the model", digest(MODEL), "churn &lt;b&gt;", "float[2]", "none in force", "first"):
        assert text in added.text
    begun = fields(person.get("/ui/derived-attributes-new?name=score&of=model"))
    assert json.loads(begun["text"])["model"]["digest"] == digest(MODEL)
    publish = begun | {"written": "fields", "act": "publish", "reason": "first"}
    wrong = html.unescape(person.post("/ui/derived-attributes/score", publish, 422))
    assert "2" in wrong.partition('id="problems"')[2]
    both = {"/model/inputs/0/path": "a", "/model/inputs/1/path": "b", "/model/inputs/1/default": "1.5"}
    saved = person.post("/ui/derived-attributes/score", publish | both)
    assert f"/ui/models#model-{digest(MODEL)}" in person.get("/ui/derived-attributes")
    assert "Published version 1" in saved
    inputs = site.api().get("/v1/derived-attributes/score").json()["model"]["inputs"]
    assert inputs == [{"path": "a", "default": 0}, {"path": "b", "default": 1.5}]
    assert "/ui/derived-attributes/score" in person.get("/ui/models")


def test_a_file_that_cannot_be_used_is_refused_at_its_field(site: Site) -> None:
    person = site.signed_in()
    for content, reason, problem in (
        (b"no model", "new", "no valid ONNX model"),
        (MODEL, " ", "Give a reason"),
        (bytes((16 << 20) + 1), "new", "16,777,216 bytes"),
    ):
        refused = upload(person, content, name="mine", reason=reason)
        assert refused.status_code == 422
        assert problem in refused.text.partition('id="wrong"')[2]
        assert 'value="mine"' in refused.text


def test_who_may_add_one(site: Site) -> None:
    analyst = site.signed_in(Role.ANALYST)
    assert "data-upload" not in analyst.get("/ui/models")
    assert upload(analyst, MODEL, reason="new").status_code == 403
    assert upload(site.signed_in(), MODEL, token="", reason="new").status_code == 403
