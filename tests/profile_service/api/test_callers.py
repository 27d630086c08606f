"""Callers: tokens from the real metadata service, revoked, expired, over their rate; and outages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from idgraph.app.settings.document import load
from idgraph.client import ProfilesClient
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from idgraph.web.limits import RateLimit
from idgraph.web.server import serving
from metadata_service.api.app import create_app as create_metadata
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.database import Database
from metadata_service.storage.requests import add_step, find_requests, keep
from metadata_service.storage.sessions import SignInSessions
from metadata_service.storage.tables import RequestRow
from metadata_service.storage.tokens import Role, revoke_token
from metadata_service.storage.users import PersonRights, add_user
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.service import ProfileService
from sinks.http.metadata import MetadataClient
from tests.metadata_service.made_tokens import create_token
from tests.profile_service.api.conftest import Served, problem
from tests.retail import Pipeline, records
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


SECONDS = 30


class Both:
    """Both services, and their database."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        metadata = create_metadata(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
        self.database: Database = metadata.state.service.database
        url = stack.enter_context(serving(metadata))
        token = create_token(self.database, "service", Role.SERVICE)
        pipeline = Pipeline(folder)
        pipeline.process(records(20))
        client = stack.enter_context(MetadataClient(url, token))
        self.following = stack.enter_context(Following(client))
        audit = AuditLog(AuditFile(folder / "audit.jsonl"), pipeline.provider.purpose_key(PURPOSE))
        service = self.service = ProfileService(pipeline, self.following, audit)
        self.metadata_url = url
        self.url = stack.enter_context(serving(create_app(service, RateLimit(3, 3))))

    def ask(self, token: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(f"{self.url}/v1/search/count", headers=headers, trust_env=False, timeout=SECONDS)

    def ask_until(self, token: str, status: int, pause: float = 0.4) -> httpx.Response:
        ends = time.monotonic() + SECONDS
        while (answer := self.ask(token)).status_code != status:
            assert time.monotonic() < ends, answer.text
            time.sleep(pause)
        return answer


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with ExitStack() as stack:
        yield Both(stack, tmp_path)


def test_a_token_works_until_it_is_revoked(both: Both) -> None:
    problem(both.ask(None), 401)
    problem(both.ask_until("nonsense", 401), 401)
    token = create_token(both.database, "crm", Role.PROFILES, clearance=10)
    assert both.ask_until(token, 200).json()["count"] > 0
    revoke_token(both.database, "crm")
    problem(both.ask_until(token, 401), 401)


def test_no_machine_with_another_task_reads_profiles(both: Both) -> None:
    for role in (Role.READER, Role.PIPELINE, Role.SERVICE):
        token = create_token(both.database, f"the {role}", role)
        problem(both.ask_until(token, 401), 401)


@pytest.mark.parametrize("role", Role)
def test_only_the_service_and_admins_learn_who_calls(both: Both, role: Role) -> None:
    token = create_token(both.database, f"a {role}", role)
    answer = httpx.get(
        f"{both.metadata_url}/v1/callers", headers={"Authorization": f"Bearer {token}"}, trust_env=False
    )
    assert answer.status_code == (200 if role in (Role.ADMIN, Role.SERVICE) else 403)
    assert token not in answer.text


def test_an_invented_session_is_refused_and_one_that_began_just_now_works(both: Both) -> None:
    both.ask_until("nonsense", 401)
    seconds = int(time.time())
    for invented in (f"idgs_{seconds}_guessed", f"idgs_{seconds - 60}_guessed", "idgs_", "idgs_1_"):
        problem(both.ask(invented), 401)
    session = SignInSessions(both.database).begin(create_token(both.database, "ann", Role.VIEWER))
    assert session
    found = SignInSessions(both.database).find(session)
    assert found
    # Whoever asks by the client, as the pages do, waits until the service knows it.
    with ProfilesClient(both.url, str(found.profiles_token)) as client:
        assert client.count("") > 0


def test_a_script_of_a_named_origin_may_call_and_asks_first_without_a_token(both: Both) -> None:
    shop, other = "https://shop.example", "https://shop.example.org"
    app = create_app(both.service, allowed_origins=[shop])
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        allowed = client.options("/v1/me", headers=asked | {"Origin": shop})
        assert allowed.status_code == 200
        assert allowed.headers["Access-Control-Allow-Origin"] == shop
        assert "Access-Control-Allow-Credentials" not in allowed.headers
        assert (
            "Access-Control-Allow-Origin"
            not in client.options("/v1/me", headers=asked | {"Origin": other}).headers
        )
        answer = client.get("/v1/me", headers={"Origin": shop, "Authorization": "Bearer wrong"})
        problem(answer, 401)
        assert answer.headers["Access-Control-Allow-Origin"] == shop, "a script can read why"
    with httpx.Client(base_url=both.url, trust_env=False) as client:
        refused = client.options("/v1/me", headers=asked | {"Origin": shop})
        assert refused.status_code == 401
        assert "Access-Control-Allow-Origin" not in refused.headers


def test_what_is_granted_to_a_person_comes_with_their_keys(both: Both) -> None:
    tokens = {}
    for owner in ("ann", "ann2", "bob"):
        with both.database.write("somebody") as edit:
            add_user(edit, owner, PersonRights(role=Role.VIEWER))
        tokens[owner] = create_token(both.database, "key", Role.VIEWER, owner=owner)
    ends = datetime.now(UTC) + timedelta(hours=1)
    for person, path, until in (
        ("ann/other", "a.b", ends),
        ("bob", "c", ends),
        ("bob", "d", datetime.now(UTC)),
    ):
        with both.database.write(person, "a purpose") as edit:
            number = keep(edit, "grant_path", path, "{}")
        with both.database.write("officer", "a reason") as edit:
            (request,) = find_requests(edit.session, RequestRow.id == number)
            add_step(edit, request, "granted", "r", [30], until)
    for owner, paths in (("ann", [("a.b", 30)]), ("ann2", []), ("bob", [("c", 30)])):
        both.ask_until(tokens[owner], 200)
        eventually(
            lambda: sorted(both.following.caller(tokens[owner]).granted(datetime.now(UTC))) == paths  # type: ignore[union-attr] # noqa: B023 - called here
        )


def test_a_caller_has_a_rate(both: Both) -> None:
    token = create_token(both.database, "fast", Role.PROFILES)
    first = both.ask_until(token, 200)
    assert first.headers["RateLimit-Limit"] == "3"
    refused = both.ask_until(token, 429, pause=0)
    assert int(refused.headers["Retry-After"]) >= 1
    other = create_token(both.database, "other", Role.PROFILES)
    assert both.ask_until(other, 200)


def test_while_the_metadata_service_is_away_known_callers_are_answered(served: Served) -> None:
    client = served.client("everything")
    served.metadata.is_away = True
    try:
        time.sleep(1.5)
        assert client.get("/v1/search/count").status_code == 200
        problem(served.client("unknown").get("/v1/search/count"), 401)
    finally:
        served.metadata.is_away = False


def test_before_the_metadata_service_answers_nothing_is_answered(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    with ExitStack() as stack:
        away = stack.enter_context(MetadataClient("http://127.0.0.1:9", "token"))
        following = stack.enter_context(Following(away))
        audit = AuditLog(AuditFile(tmp_path / "audit.jsonl"), b"key")
        url = stack.enter_context(serving(create_app(ProfileService(pipeline, following, audit))))
        headers = {"Authorization": "Bearer any"}
        answer = httpx.get(f"{url}/v1/search/count", headers=headers, trust_env=False)
        problem(answer, 503)
        assert answer.headers["Retry-After"]
        problem(httpx.get(f"{url}/health/ready", trust_env=False), 503)
        assert httpx.get(f"{url}/health/live", trust_env=False).status_code == 200


def test_the_settings_have_a_place_for_its_token(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text('[profiles]\ntoken_file = "own.token"\n')
    assert load(file).profiles_token_file() == tmp_path / "own.token"
