"""The page of sandboxes: made, compared, promoted with a reason, and deleted by the typed name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from idgraph.model.attributes import AttributeDefinition
from idgraph.signatures import ServiceKey
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.attributes.catalogue import carry_out, plan_attribute
from metadata_service.sandboxes.folder import DATABASE, KEY
from metadata_service.storage.database import open_database
from metadata_service.storage.tokens import Role
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import Person, Site

pytestmark = pytest.mark.slow


PAGE = "/ui/sandboxes"


def edit(app: FastAPI, name: str, path: str) -> None:
    """Declare an attribute in a sandbox."""
    place = app.state.service.settings.sandboxes / name
    key = ServiceKey(place / KEY).history
    with closing(open_database(f"sqlite:///{place / DATABASE}", key)) as opened, opened.write("me") as edit:
        definition = AttributeDefinition.model_validate(
            {"path": path, "data_type": "string", "status": "active", "description": "<b>tried</b>"}
        )
        carry_out(edit, plan_attribute(edit, definition, lambda _: None))


@pytest.fixture
def admin(site: Site) -> Iterator[Person]:
    yield site.signed_in()
    api = site.api()
    for each in api.get("/v1/sandboxes").json()["items"]:
        api.delete(f"/v1/sandboxes/{each['name']}").raise_for_status()


def test_a_sandbox_is_made_compared_promoted_and_deleted(site: Site, admin: Person) -> None:
    assert "No sandbox yet" in admin.get(PAGE)
    made = admin.post(PAGE, {"name": "try", "reason": "<script>alert(1)</script>"})
    assert "idgraph --sandbox try" in made
    assert "<script>alert" not in made
    assert "Nothing differs" in made
    edit(site.app, "try", "tried.path")
    compared = admin.get(f"{PAGE}?sel=try")
    assert "tried.path" in compared
    assert "<b>tried</b>" not in compared
    item = json.dumps({"kind": "attribute", "name": "tried.path"})
    fields = {"act": "promote", "item-0": item}
    assert 'role="alert"' in admin.post(f"{PAGE}/try", fields | {"reason": ""}, 422)
    assert 'role="alert"' in admin.post(f"{PAGE}/try", {"act": "promote", "reason": "x"}, 422)
    assert 'role="alert"' in admin.post(f"{PAGE}/try", fields | {"item-0": "{", "reason": "x"}, 422)
    assert "published" in admin.post(f"{PAGE}/try", fields | {"reason": "it is good"})
    assert site.api().get("/v1/attributes/tried.path").is_success
    assert 'role="alert"' in admin.post(f"{PAGE}/try", fields | {"reason": "again"}, 404)
    assert 'role="alert"' in admin.post(f"{PAGE}/try", {"act": "delete", "typed": "tyr"}, 422)
    assert "Deleted" in admin.post(f"{PAGE}/try", {"act": "delete", "typed": "try", "reason": "done"})
    assert "No sandbox yet" in admin.get(PAGE)


def test_what_is_refused_is_said_and_what_was_typed_stays(admin: Person) -> None:
    assert 'value="No Name"' in admin.post(PAGE, {"name": "No Name"}, 422)
    admin.post(PAGE, {"name": "try"})
    assert 'role="alert"' in admin.post(PAGE, {"name": "try"}, 409)
    admin.get(f"{PAGE}?sel=other", 404)
    admin.post(f"{PAGE}/other", {"act": "delete", "typed": "other"}, 404)
    assert "No sandbox matches" in admin.get(f"{PAGE}?q=nothing")


@pytest.mark.parametrize(
    ("role", "makes", "deletes"),
    [(Role.VIEWER, 403, 403), (Role.ANALYST, 200, 403), (Role.PUBLISHER, 200, 200), (Role.PRIVACY, 403, 403)],
)
def test_the_page_has_the_rights_of_its_calls(
    site: Site, admin: Person, role: Role, makes: int, deletes: int
) -> None:
    admin.post(PAGE, {"name": "known"})
    person = site.signed_in(role)
    assert ("New sandbox" in person.get(PAGE)) is (makes == 200)
    assert ("Type its name" in person.get(f"{PAGE}?sel=known")) is (deletes == 200)
    person.post(PAGE, {"name": f"by-{role}"}, makes)
    person.post(f"{PAGE}/known", {"act": "delete", "typed": "known"}, deletes)


def test_the_bar_names_the_sandbox(tmp_path: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}", sandbox="try"))
    token = create_token(app.state.service.database, "me", Role.ADMIN)
    with (
        serving(app) as url,
        httpx.Client(
            base_url=url, follow_redirects=True, timeout=60, trust_env=False, verify=False
        ) as client,
    ):
        page = client.post("/ui/sign-in", data={"token": token})
        assert "Sandbox try" in page.text
        assert "No sandboxes here" in client.get(PAGE).text
