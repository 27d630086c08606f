"""The pages of dead letters, without a browser's help."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest

from idgraph.model.jobs import JobKind, JobState
from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import Person, Whole
from tests.retail import order, raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


LIST = "/ui/dead-letters"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def letters(whole: Whole) -> Iterator[dict[str, str]]:
    """Ids of dead letters by their reason."""
    city = {"line1": "1 Main St", "city": SCRIPT, "country": "US"}
    given = [
        order(1, 701, created_at="soon", shipping=city),
        *(order(n, 800 + n, order_id=None) for n in range(60)),
        raw(b"{", 702),
    ]
    found = whole.pipeline.map(*given).dead_letters
    whole.letters.put(found)
    yield {str(each.reason): each.id for each in found}
    whole.letters.drop([each.id for each in found])


@pytest.fixture
def operator(whole: Whole) -> Person:
    person = whole.site.signed_in()
    eventually(lambda: person.client.get(LIST).status_code == 200)
    return person


def text(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


@pytest.mark.usefixtures("letters")
def test_a_list_is_filtered_grouped_and_paged_by_its_address(operator: Person) -> None:
    page = operator.get(LIST)
    assert "62 match" in text(page)
    assert "limit=50" in html.unescape(page)
    assert re.search(r'reason=missing_id"[^>]*><code>missing_id</code><b>60</b>', page)
    following = re.search(r'rel="next" href="([^"]+)"', page)
    assert following
    assert operator.get(LIST + html.unescape(following[1])).count('type="checkbox"') == 12
    assert "No dead letter matches" in operator.get(f"{LIST}?file=elsewhere.jsonl")
    assert "1 matches" in text(operator.get(f"{LIST}?reason=transform_failed&source=orders&since=24h"))
    none = operator.get(f"{LIST}?source=segment")
    assert "No dead letter matches" in none
    assert "60 match" in text(operator.get(f"{LIST}?reason=missing_id&until=2999-01-01"))


@pytest.mark.usefixtures("letters")
def test_a_wrong_field_is_named_and_left_out(operator: Person) -> None:
    page = operator.get(f"{LIST}?since=yesterday&reason=missing_id")
    assert re.search(
        r'name="since" value="yesterday"[^>]*aria-invalid="true" aria-describedby="wrong-since"', page
    )
    assert "60 match" in text(page)
    assert "There is no such reason" in operator.get(f"{LIST}?reason=none")


def test_a_record_shows_its_cause_and_nothing_protected(operator: Person, letters: dict[str, str]) -> None:
    page = operator.get(f"{LIST}/{letters['transform_failed']}")
    assert "example.com" not in page
    assert re.search(
        r'class="cause"><code>\s*&#34;created_at&#34;: </code><code class="value text">&#34;soon', page
    )
    assert SCRIPT not in page
    assert operator.get(f"{LIST}/{letters['not_json']}").count("Nothing is shown") == 1
    operator.get(f"{LIST}/none", 404)


def test_the_editor_takes_a_record_as_its_sample(operator: Person, letters: dict[str, str]) -> None:
    address = re.search(
        r'href="([^"]+)">Open in the spec editor', operator.get(f"{LIST}/{letters['missing_id']}")
    )
    assert address
    page = operator.get(html.unescape(address[1]))
    field = re.search(r'<textarea id="sample"[^>]*>(.*?)</textarea>', page, re.S)
    assert field
    sample = json.loads(html.unescape(field[1]))
    assert (sample["customer"]["email"], sample["cart"]["items"]) == ("sealed", 1)
    not_mapped = operator.get(f"{LIST}/{letters['not_json']}")
    assert "Open in the spec editor" not in not_mapped


def test_chosen_ones_and_all_that_match_are_replayed(
    whole: Whole, operator: Person, letters: dict[str, str]
) -> None:
    page = operator.get(f"{LIST}/replay?reason=missing_id&since=24h")
    assert "Replay 60 dead letters?" in page
    fields = dict(re.findall(r'<input type="hidden" name="(reason|since)" value="([^"]+)"', page))
    assert set(fields) == {"reason", "since"}
    operator.post(f"{LIST}/replay", fields | {"why": ""}, 422)
    job = operator.post(f"{LIST}/replay", fields | {"why": "the spec reads another id"})
    assert "Replay" in text(job)
    record = whole.jobs.records()[0]
    assert (record.kind, record.origin.why) == (JobKind.REPLAY, "the spec reads another id")
    again = operator.post(f"{LIST}/replay", fields | {"why": "again"}, 409)
    assert 'value="again"' in again
    whole.jobs.step(60, JobState.DONE)
    chosen = f"{LIST}/replay?id={letters['not_json']}&id={letters['transform_failed']}"
    assert "Replay 2 dead letters?" in operator.get(chosen)
    operator.post(f"{LIST}/replay", {"ids": letters["not_json"], "why": "one"})
    assert whole.jobs.dead_letters == [letters["not_json"]]
    whole.jobs.step(1, JobState.DONE)
    assert "Nothing to replay" in operator.get(f"{LIST}/replay?id=none")


def test_one_some_and_all_that_match_are_dropped_with_a_reason(
    whole: Whole, operator: Person, letters: dict[str, str]
) -> None:
    letter = letters["not_json"]
    assert f'href="/ui/dead-letters/drop?id={letter}"' in operator.get(f"{LIST}/{letter}")
    assert "Drop 1 dead letter?" in operator.get(f"{LIST}/drop?id={letter}")
    operator.post(f"{LIST}/drop", {"ids": letter, "why": ""}, 422)
    assert whole.letters.get(letter) is not None
    assert "Dropped 1." in text(
        operator.post(f"{LIST}/drop", {"ids": letter, "why": "an editor's swap file"})
    )
    assert whole.letters.get(letter) is None
    # Nothing chosen is not all.
    for act in ("drop", "replay"):
        assert '<form method="post" action="/ui/dead-letters' not in operator.get(f"{LIST}/{act}?chosen=true")
    page = operator.get(f"{LIST}/drop?reason=missing_id")
    assert "Drop 60 dead letters?" in text(page)
    fields = dict(re.findall(r'<input type="hidden" name="(reason|until)" value="([^"]+)"', page))
    # One that is set aside behind the question stays.
    later = whole.pipeline.map(order(2, 990, order_id=None)).dead_letters
    whole.letters.put([each._replace(set_aside_at=2**42) for each in later])
    try:
        operator.post(f"{LIST}/drop", fields | {"why": "sent without ids, sent again"})
        left = [each.id for each in whole.letters.newest(100)]
        assert left == [later[0].id, letters["transform_failed"]]
    finally:
        whole.letters.drop([each.id for each in later])


@pytest.mark.usefixtures("letters")
def test_a_published_spec_leads_to_the_dead_letters_of_its_source(operator: Person) -> None:
    page = operator.get("/ui/specs/shop-orders?published=true")
    waiting = re.search(r"(\d+) dead letters of orders may pass now", text(page))
    assert waiting
    assert f"Replay {waiting[1]} dead letters?" in operator.get(f"{LIST}/replay?source=orders")
    assert "may pass now" not in operator.get("/ui/specs/shop-amplitude?published=true")


def test_without_the_scope_a_page_says_how_to_get_it(whole: Whole, letters: dict[str, str]) -> None:
    viewer = whole.site.signed_in(Role.VIEWER)
    for path in (LIST, f"{LIST}/{letters['not_json']}", f"{LIST}/replay?id={letters['not_json']}"):
        assert "Ask for access" in viewer.get(path, 403)
    for act in ("replay", "drop"):
        viewer.post(f"{LIST}/{act}", {"ids": letters["not_json"], "why": "x"}, 403)
    assert whole.site.browser().get(LIST).url.path == "/ui/sign-in"
    assert viewer.client.post(f"{LIST}/replay", data={"ids": "x", "why": "x"}).status_code == 403
