"""A source that no configuration names is said where somebody writes a spec of it, with the lines that add it."""

from __future__ import annotations

import html
import json
import re
import tomllib

import pytest

from idgraph.model.callers import Role
from tests.metadata_service.ui.site import Person, Whole
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


EVENT = {"id": "r-1", "at": "2024-05-01T10:00:00Z", "user_id": 3474, "seats": 2}
EDIT = "/ui/specs/theatre-seats/edit"


@pytest.fixture
def writer(whole: Whole) -> Person:
    person = whole.site.signed_in()
    eventually(lambda: person.client.get("/ui/flows").status_code == 200)
    return person


def lines_in(page: str) -> dict[str, object]:
    """The lines to add that a page has, ready to be copied."""
    found = re.search(r'<pre[^>]*aria-label="Lines to add">(.*?)</pre>', page, re.S)
    assert found, page
    copied = re.search(r'data-copy="([^"]+)">Copy the lines', page)
    assert copied
    assert copied[1].strip() == found[1].strip()
    sources: list[dict[str, object]] = tomllib.loads(html.unescape(found[1]))["sources"]
    return sources[0]


def test_it_is_said_from_the_first_draft_to_the_published_spec(writer: Person) -> None:
    typed = {"name": "theatre-seats", "source": "theatre", "event_type": "seat", "events": json.dumps(EVENT)}
    wanted = {"name": "theatre", "path": "inbox/theatre", "type": {"const": "seat"}}
    assert lines_in(writer.post("/ui/generate", typed)) == wanted
    page = writer.post("/ui/generate", typed | {"act": "draft"})
    assert lines_in(page) == wanted
    text = re.search(r'<textarea id="text"[^>]*>(.*?)</textarea>', page, re.S)
    assert text
    fields = {"text": html.unescape(text[1]), "sample": "", "etag": "", "reason": "seats"}
    newest = writer.post(EDIT, fields | {"act": "newest"}, 422)
    assert lines_in(newest) == wanted
    assert "answered 404" not in newest
    effect = writer.post("/ui/specs/theatre-seats/effect", fields | {"act": "run"})
    assert lines_in(effect) == wanted
    assert re.search(r'name="agreed" required', effect)
    button = re.search(r"<button[^>]*id=\"publish\"[^>]*>", effect)
    assert button
    assert "disabled" not in button[0]
    etag = re.search(r'name="etag" value="([^"]+)"', effect)
    assert etag
    published = writer.post(
        "/ui/specs/theatre-seats/publish", fields | {"etag": html.unescape(etag[1]), "act": "publish"}
    )
    assert "Published theatre-seats@1" in published
    assert lines_in(published) == wanted


@pytest.mark.parametrize(
    ("source", "added"),
    [
        ("shop.refunds", {"name": "shop-refunds", "source": {"const": "shop.refunds"}}),
        ("loyalty_2", {"name": "loyalty_2"}),
    ],
)
def test_the_lines_are_a_table_of_the_configuration(
    writer: Person, source: str, added: dict[str, object]
) -> None:
    found = lines_in(writer.get(f"/ui/specs-new?source={source}"))
    assert found == added | {"path": f"inbox/{added['name']}"}


def test_a_misspelt_source_names_the_nearest_and_a_configured_one_nothing(
    whole: Whole, writer: Person
) -> None:
    assert "did you mean &#39;segment&#39;?" in writer.get("/ui/specs-new?source=segmnt")
    for source in ("segment", "seg*"):
        assert "Lines to add" not in writer.get(f"/ui/specs-new?source={source}")
    assert "Lines to add" not in writer.get("/ui/specs-new")
    # A pattern that no source matches has no lines.
    page = writer.get("/ui/specs-new?source=theatre*")
    assert "is configured" in page
    assert "Lines to add" not in page
    # An analyst drafts, and is told too.
    analyst = whole.site.signed_in(Role.ANALYST)
    eventually(lambda: "Lines to add" in analyst.get("/ui/specs-new?source=theatre"))
