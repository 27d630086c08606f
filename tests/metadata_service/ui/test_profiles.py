"""A person's page: asked with the reader's own token, masked, and never markup."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any

import httpx
import pytest

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.callers import Scope
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.storage.tokens import Role, revoke_token
from metadata_service.ui import frame
from metadata_service.ui.page import ProfileSource
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import EVENT, Person, Whole, two_fragments
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


SCRIPT = '<script>alert(1)</script>"onload=alert(1)'
REFUSED = {httpx.codes.FORBIDDEN, httpx.codes.SERVICE_UNAVAILABLE}
"""By a profile service that does not know the session yet."""
PERSON = "/ui/profiles/user_id:3474"
CLIENT_OF_PAGES = ProfileSource.client
"""Before a fixture lets all other tests wait longer."""


def reader(
    whole: Whole,
    name: str,
    clearance: int,
    *scopes: Scope,
    reveal: bool = False,
    role: Role = Role.PROFILES,
) -> Person:
    """Somebody whose token the profile service admits."""
    database = whole.site.app.state.service.database
    with suppress(UnknownSubjectError):
        # Of the same test, which failed and is played once more.
        revoke_token(database, name)
    token = create_token(database, name, role, None, clearance, reveal, scopes)
    client = whole.site.browser()
    begins = "/ui/profiles" if role is Role.PROFILES else "/ui/"
    assert client.post("/ui/sign-in", data={"token": token}).url.path == begins
    person = Person(client)
    eventually(lambda: client.get(PERSON).status_code not in REFUSED)
    return person


@contextmanager
def away(whole: Whole) -> Iterator[None]:
    """Nothing listens where the profile service should be."""
    pages = whole.site.app.state.pages.state
    known = pages.profile_source
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        pages.profile_source = known._replace(url=f"http://127.0.0.1:{bound.getsockname()[1]}")
        try:
            yield
        finally:
            pages.profile_source = known


def test_what_is_above_the_clearance_is_absent_and_what_is_protected_is_sealed(whole: Whole) -> None:
    high, low = (reader(whole, f"clearance {level}", level).get(PERSON) for level in (50, 0))
    assert " is sealed" in high
    for page in (high, low):
        assert "Purchase" in page
        assert "shop-segment@" in page
        assert "ictoria" not in page
    assert "email" not in low
    assert "seal" not in low


def test_one_sign_in_serves_both_services(whole: Whole) -> None:
    person = whole.site.signed_in(Role.ADMIN)
    assert "3474" in person.get(PERSON)
    assert "shop-segment" in person.get("/ui/specs")
    token = person_key(whole, person)
    headers = {"Authorization": f"Bearer {token}"}
    source = whole.site.app.state.pages.state.profile_source
    ask = partial(httpx.get, f"{source.url}/v1/search/count", headers=headers, trust_env=False)
    assert ask().status_code == httpx.codes.OK
    person.post("/ui/sign-out", {})
    eventually(lambda: ask().status_code == httpx.codes.UNAUTHORIZED)


def person_key(whole: Whole, person: Person) -> str | None:
    """What the pages ask the profile service with."""
    found = whole.site.app.state.pages.state.sessions.find(person.client.cookies["idgraph-session"])
    assert found is not None
    return str(found.profiles_token)


def test_a_machine_that_reads_the_catalogue_reads_no_profile(whole: Whole) -> None:
    assert "Ask for access" in whole.site.signed_in(Role.READER).get(PERSON, 403)


def test_a_revoked_token_reads_nobody(whole: Whole) -> None:
    person = reader(whole, "leaver", 50)
    revoke_token(whole.site.app.state.service.database, "leaver")
    assert person.client.get(PERSON).url.path == "/ui/sign-in"


def test_identifiers_that_are_looked_for_are_in_no_address(whole: Whole) -> None:
    person = reader(whole, "searching", 50)
    answer = person.client.post(
        "/ui/profiles", data={"q": "email:victoria@example.com", "csrf": person.csrf()}
    )
    assert answer.url.path == "/ui/profiles/user_id:3474"
    assert "ictoria" not in answer.text
    missing = person.post("/ui/profiles", {"q": "email:nobody@example.com"}, 404)
    assert "No profile has" in missing


def searched(person: Person, q: str, status: int = 200, **more: str) -> tuple[str, str]:
    """The page of a search, and its address."""
    answer = person.client.post("/ui/profiles", data={"q": q, "csrf": person.csrf()} | more)
    assert answer.status_code == status, (q, answer.status_code)
    return answer.text, str(answer.url)


def test_profiles_are_searched_by_value_word_and_identifier(whole: Whole) -> None:
    person = reader(whole, "product team", 50)
    for q in ("activity.platform = web", "activity.lastEvent: purchase", "purchase", "3474"):
        page, address = searched(person, q)
        assert "/ui/profiles/" in page, q
        assert "search=" in address
        assert q.split()[-1] not in address
        assert q in unescape(person.get(address))
    page, _ = searched(person, "platform = web")
    assert "No profile matches" in page
    assert "activity.platform = web" in page
    page, _ = searched(person, "a != b", 422)
    assert "is no operator" in page
    assert 'value="a != b"' in page


def test_a_search_is_narrowed_by_a_filter_and_read_page_by_page(whole: Whole) -> None:
    person = reader(whole, "narrowing", 50)
    page, address = searched(person, "activity.lastEvent=View OR x=1", add='activity.platform="web"')
    assert "(activity.lastEvent=View OR x=1) activity.platform=&#34;web&#34;" in page
    following = re.search(r'rel="next" href="([^"]+)"', page)
    assert following
    second = person.get("/ui/profiles" + unescape(following[1]))
    links = [set(re.findall(r'scope="row"><a href="([^"]+)', each)) for each in (page, second)]
    assert links[0]
    assert links[0].isdisjoint(links[1])
    up, down = (
        re.findall(r"lastSeenAt\">.*?(\d{13})", person.get(f"{address}&sort={sort}activity.lastSeenAt"))
        for sort in ("", "-")
    )
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    assert up[0] < down[0]


def test_a_search_shows_nothing_above_the_clearance(whole: Whole) -> None:
    low, high = (reader(whole, f"searching at {level}", level) for level in (0, 50))
    token = "identity.email=victoria@example.com"
    found, _ = searched(high, token)
    assert "user_id" in found
    assert "is sealed" in found
    hidden, _ = searched(low, token)
    unknown, _ = searched(low, "identity.emaal=victoria@example.com")
    assert "No profile matches" in hidden
    assert hidden.count("no attribute is called") == unknown.count("no attribute is called") == 1
    assert "email" not in low.get("/ui/profiles?q=")


def test_a_search_that_cannot_be_made_keeps_what_was_typed(whole: Whole) -> None:
    person = reader(whole, "patient", 50)
    csrf = person.csrf()
    for typed in ("guitar", "user_id:3474"):
        with away(whole):
            answer = person.client.post("/ui/profiles", data={"q": typed, "csrf": csrf})
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert f'value="{typed}"' in answer.text
        assert "Nothing was searched" in answer.text


def test_a_person_has_what_lost_the_json_and_the_decisions(whole: Whole) -> None:
    whole.process([raw(each, source="segment") for each in two_fragments()])
    place = "/ui/profiles/user_id:7301"
    admin = reader(whole, "deciding", 50, Scope.LINKS)
    page = admin.get(place)
    assert re.search(r">lost</span>.*?&#34;ios&#34;.*?m-lost-1", page, re.DOTALL)
    assert "<b>Merged</b>" in page
    source = whole.site.app.state.pages.state.profile_source
    for decision in ("never", "none"):
        pin = {"pair": ["user_id:7301", "anonymous_id:lost-1"], "decision": decision}
        body = {"pins": [pin]}
        reason = {"reason": f"decided {decision}"}
        with source.client(str(person_key(whole, admin))) as client:
            preview = client.call("POST", "links", "preview", body=body)
            client.call("POST", "links", body=body | reason, if_match=preview["etag"])
    page = admin.get(place)
    assert page.index("Taken back") < page.index("Unlinked")
    assert "decided never" in page
    assert "decided never" not in reader(whole, "reading", 50).get(place)
    shown = admin.get(f"{place}?tab=json")
    assert "&#34;$protected&#34;: true" in shown
    assert "ictoria" not in shown
    assert "provenance=true" not in shown


def test_a_consent_that_lost_names_its_identifier() -> None:
    won = {"purpose": "marketing", "status": "given", "source": "web", "time": None}
    lost = won | {"status": "withdrawn", "fragment": "device_id:till"}
    people: Any = frame._environment().get_template("people.html").module
    page = people.consent_list([won], [lost])
    assert page.count("marketing") == 2
    assert page.index("Given") < page.index("lost, of") < page.index("till") < page.index("Withdrawn")


def test_a_privacy_officer_sees_the_households_of_a_person(whole: Whole) -> None:
    officer = reader(whole, "household officer", 50, Scope.PRIVACY)
    assert "member of none" in officer.get(PERSON)
    assert "Households" not in reader(whole, "no officer", 50).get(PERSON)


def test_values_of_events_are_text(whole: Whole) -> None:
    event = EVENT | {
        "messageId": "m-script",
        "userId": "777",
        "anonymousId": SCRIPT,
        "event": SCRIPT,
        "platform": SCRIPT,
    }
    whole.process([raw(event | {"experiments": {SCRIPT: SCRIPT}}, source="segment")])
    page = reader(whole, "looking", 50).get("/ui/profiles/user_id:777")
    assert "alert(1)" in page
    assert "<script>" not in page
    assert '"onload' not in page


def test_a_profile_service_that_is_away_is_named_and_the_catalogue_still_works(whole: Whole) -> None:
    person = reader(whole, "waiting", 50)
    with away(whole):
        assert "does not answer" in person.get(PERSON, 503)
    assert "3474" in person.get(PERSON)


def test_a_page_does_not_try_a_silent_profile_service_again(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = reader(whole, "patient", 50)
    state = whole.site.app.state.pages.state._state
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(
            ProfileSource, "client", lambda source, token, _=0.0: CLIENT_OF_PAGES(source, token, 0.1)
        )
        monkeypatch.setitem(state, "profile_source", ProfileSource(address))
        assert "does not answer" in person.get(PERSON, 503)
        server.settimeout(1)
        server.accept()[0].close()
        with pytest.raises(TimeoutError):
            server.accept()


def test_an_attribute_says_how_many_profiles_have_it_by_what_its_reader_sees(whole: Whole) -> None:
    place = "/ui/attributes/activity.lastEvent?values=true"
    assert "Not known" in whole.site.signed_in(Role.READER).get(place)
    person = whole.site.signed_in()
    page = person.get(place)
    assert "Purchase" in page
    assert "<progress" in page
    assert re.search(r"<dt>Types</dt><dd>text [1-9][0-9]*</dd>", page)
    assert "<dt>Types</dt><dd>number" in person.get("/ui/attributes/activity.lastSeenAt?values=true")
    sealed = person.get("/ui/attributes/identity.email?values=true")
    assert "Not known" not in sealed
    assert "ictoria" not in sealed
    protected = person.get("/ui/attributes/identity.name.full?values=true")
    assert "answered 400" not in protected
    assert "<progress" not in protected


def test_what_is_over_a_cap_is_stored_and_stays_out_of_the_catalogue(whole: Whole) -> None:
    admin = whole.site.api()
    admin.put("/v1/discovery-defaults", json={"most_attributes": 0}).raise_for_status()
    whole.process([raw(EVENT | {"messageId": "m-cap", "experiments": {"button": "blue"}}, source="segment")])
    assert "blue" in whole.site.signed_in().get(PERSON)
    assert admin.get("/v1/attributes/experiments.button").status_code == httpx.codes.NOT_FOUND
    assert admin.get("/v1/discovery-counts").json()["days"][0]["waiting"]
    admin.put("/v1/discovery-defaults", json={}).raise_for_status()
    whole.process([raw(EVENT | {"messageId": "m-room", "experiments": {"button": "red"}}, source="segment")])
    assert admin.get("/v1/attributes/experiments.button").status_code == httpx.codes.OK


def test_times_name_their_zone_and_values_that_are_times_can_be_read(whole: Whole) -> None:
    page = reader(whole, "of the time", 50).get(PERSON)
    shown = re.search(
        r'lastSeenAt</b>.*?<code class="value number">(\d+)</code>\s*<span[^>]*>([^<]+)<', page, re.S
    )
    assert shown
    assert shown[2] == frame.as_time(datetime.fromtimestamp(int(shown[1]) / 1000, UTC))
    assert shown[2].endswith(" UTC")
    assert [
        frame.value_time(each, path) for each, path in ((1712052000000, "orders.total"), ("x", "seenAt"))
    ] == ["", ""]
    assert frame.value_time(1712052000, "order.created_at") == frame.value_time(1712052000000, "lastSeen")
    assert frame.value_time(1712052000000, "orders.total", "milliseconds") == "2 Apr 2024 10:00 UTC"
    assert frame.value_time(10**30, "x", "milliseconds") == frame.value_time("x", "x", "milliseconds") == ""
    for path in ("format", "cart", "data", "estimate", "update"):
        assert not frame.is_time(path), path


def test_a_value_that_metadata_calls_a_time_is_shown_as_one(whole: Whole) -> None:
    admin, address = whole.site.api(), "/v1/attributes/activity.purchase.total"
    known = admin.get(address).json()
    stated = {each: known[each] for each in AttributeDefinition.model_fields if each in known}
    admin.put(address, json=stated | {"time": "milliseconds"}).raise_for_status()
    try:
        person = whole.site.signed_in(Role.ADMIN)
        assert "1 Jan 1970 00:00 UTC" in person.get(PERSON)
        assert "1 Jan 1970 00:00 UTC" in person.get("/ui/attributes/activity.purchase.total?values=true")
    finally:
        admin.put(address, json=stated).raise_for_status()
