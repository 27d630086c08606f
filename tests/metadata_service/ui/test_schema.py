"""The page Schema: defaults, levels and caps are edited, and undecided attributes are purged after a look."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import Site
from tests.metadata_service.ui.test_pages import SCRIPT

pytestmark = pytest.mark.slow


PAGE = "/ui/schema"


def form(page: str, name: str) -> dict[str, str]:
    """The fields of a form as it was served."""
    part = page.partition(f'id="{name}"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', part))
    fields["etag"] = f'"{re.search(r"[0-9a-f]{32}", part)[0]}"'  # type: ignore[index]
    fields |= dict.fromkeys(re.findall(r'type="checkbox" name="([^"]+)"[^>]*checked', part), "on")
    for select, options in re.findall(r'<select[^>]*name="([^"]+)".*?>(.*?)</select>', part, re.S):
        chosen = re.search(r"<option selected>([^<]+)", options)
        assert chosen, select
        fields[select] = chosen[1]
    return fields


def discover(site: Site, *paths: str, source: str = "flood") -> dict[str, Any]:
    changes = [
        {"path": path, "data_type": "string", "source": source, "first_event": "flood/0/1"} for path in paths
    ]
    answer = site.api(Role.PIPELINE).patch("/v1/schema", json={"changes": changes})
    record: dict[str, Any] = answer.raise_for_status().json()
    return record


def test_caps_are_edited_and_the_page_says_when_one_is_reached(site: Site) -> None:
    person = site.signed_in()
    fields = form(person.get(PAGE), "defaults")
    assert fields["encryption"] == "none"
    saved = person.post(
        f"{PAGE}/defaults",
        fields | {"most_new_per_source_and_day": "2", "value_keys": "seen\n", "reason": "caps"},
    )
    assert "waits for a second person" in saved, "keys of values are allowed by two"
    saved = person.post(f"{PAGE}/defaults", fields | {"most_new_per_source_and_day": "2", "reason": "caps"})
    assert "Saved." in saved
    stored = site.api().get("/v1/discovery-defaults").json()
    assert (stored["most_new_per_source_and_day"], stored["indexable"]) == (2, True)
    late = person.post(
        f"{PAGE}/defaults", fields | {"most_new_per_source_and_day": "77", "reason": "late"}, 412
    )
    assert "most new per source and day 77" in late, "what was typed stands beside what is stored"
    assert discover(site, "flood.a", "flood.b", "flood.c")["waiting"] == 1
    page = person.get(PAGE)
    assert "A cap was reached" in page
    assert "Over the cap" in re.sub(r"<[^>]+>", "", page), "its column has a name for who hears the page"


def test_levels_are_edited(site: Site) -> None:
    person = site.signed_in()
    fields = form(person.get(PAGE), "levels")
    saved = person.post(f"{PAGE}/levels", fields | {"confidential-authorization_level": "60", "reason": "x"})
    assert "Saved." in saved
    levels = site.api().get("/v1/classification-levels").json()
    assert levels["confidential"] == {"encryption": "protected", "indexable": True, "authorization_level": 60}
    fresh = form(person.get(PAGE), "levels")
    wrong = person.post(f"{PAGE}/levels", fresh | {"public-authorization_level": "900", "reason": "x"}, 422)
    assert "public" in wrong.partition('role="alert"')[2]


def test_a_purge_says_first_what_would_go(site: Site) -> None:
    person = site.signed_in()
    discover(site, f"noise.{SCRIPT}", source="noise")
    person.post(f"{PAGE}/purge", {"act": "look"}, 422)
    shown = person.post(f"{PAGE}/purge", {"prefix": "noise.", "act": "look"})
    assert "1 would go" in shown
    assert "<script>" not in shown
    assert site.api().get("/v1/attributes?prefix=noise.").json()["items"]
    person.post(f"{PAGE}/purge", {"prefix": "noise.", "act": "purge"}, 422)
    assert "Purged 1" in person.post(f"{PAGE}/purge", {"prefix": "noise.", "act": "purge", "reason": "noise"})
    assert not site.api().get("/v1/attributes?prefix=noise.").json()["items"]


@pytest.mark.parametrize("role", [Role.READER, Role.PUBLISHER])
def test_who_may_not_edit_reads(site: Site, role: Role) -> None:
    person = site.signed_in(role)
    page = person.get(PAGE)
    assert "Save" not in page
    assert "Purge" not in page
    for place in ("defaults", "levels", "purge"):
        person.post(f"{PAGE}/{place}", {"reason": "x"}, 403)


def test_the_alert_is_shipped() -> None:
    alerts = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml"
    assert "idgraph_metadata_attributes_over_cap > 0" in alerts.read_text()


def test_selected_attributes_are_edited_with_one_reason(site: Site) -> None:
    site.api().put("/v1/discovery-defaults", json={}).raise_for_status()
    discover(site, "bulk.a", "bulk.b", source="bulk")
    person = site.signed_in()
    listed = person.get("/ui/attributes?q=bulk")
    assert 'name="chosen:bulk.a" value="1"' in listed
    person.post("/ui/attribute-edits", {"act": "promote", "reason": "x"}, 422)
    person.post("/ui/attribute-edits", {"act": "promote", "chosen:bulk.a": "1"}, 422)
    chosen = {"chosen:bulk.a": "1", "chosen:bulk.b": "7", "reason": "seen"}
    shown = person.post("/ui/attribute-edits", chosen | {"act": "promote"})
    assert "1 of 2 saved" in shown
    assert "meanwhile" in shown
    person.post("/ui/attribute-edits", chosen | {"act": "classify", "classification": "restricted"})
    reader = site.signed_in(Role.READER)
    reader.post("/ui/attribute-edits", chosen | {"act": "promote"}, 403)
    assert "chosen:" not in reader.get("/ui/attributes?q=bulk")


def test_the_list_asks_for_what_is_new(site: Site) -> None:
    site.api().put("/v1/discovery-defaults", json={}).raise_for_status()
    person = site.signed_in()
    asked = re.search(r'hx-get="(/ui/attribute-news\?since=[^"]+)"', person.get("/ui/attributes"))
    assert asked
    person.get(asked[1], 204)
    discover(site, f"news.{SCRIPT}", source="news")
    page = person.get(asked[1])
    assert "1 new attribute" in page
    assert "<script>" not in page
