"""Single sign-on in the running services: one issuer, the pages, and bearer tokens of both services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from idgraph.app import metadata_access
from idgraph.app.settings.document import load
from idgraph.model.callers import Role
from idgraph.model.errors import ConfigError
from idgraph.web.openid import ClaimRule, OpenId, OpenIdConfig
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage import users
from metadata_service.storage.database import Database
from profile_service.api.following import Following
from sinks.http.metadata import MetadataClient
from sinks.http.openid import HttpIssuer
from tests.metadata_service.made_tokens import create_token
from tests.profile_service.api.conftest import served_here
from tests.retail import Pipeline, records, snapshot
from tests.support.issuer import CLIENT, SECRET, LocalIssuer, local_issuer
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


AUDIENCE = "https://idgraph.example"
RULES = (
    ClaimRule("groups", "officers", Role.PRIVACY, 100, may_reveal=True),
    ClaimRule("groups", "people", Role.PUBLISHER, 20),
)


class Signing:
    """A metadata service with single sign-on, and the issuer."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.issuer: LocalIssuer = stack.enter_context(local_issuer())
        self.person("7", "ann", "people")
        config = OpenIdConfig(self.issuer.url, CLIENT, RULES, AUDIENCE, SECRET, title="the company")
        self.openid = OpenId(config, HttpIssuer())
        settings = ServiceSettings(f"sqlite:///{folder / 'metadata.db'}")
        app = create_app(settings, openid=self.openid)
        self.database: Database = app.state.service.database
        self.url = stack.enter_context(serving(app))

    def person(self, subject: str, name: str, *groups: str) -> None:
        """Who sits before the issuer's page from now on."""
        self.issuer.claims = {"sub": subject, "preferred_username": name, "groups": list(groups)}

    def browser(self) -> httpx.Client:
        return self._stack.enter_context(
            httpx.Client(base_url=self.url, follow_redirects=True, timeout=60, trust_env=False, verify=False)
        )

    def call(self, token: str, path: str = "/v1/me", method: str = "GET") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{self.url}{path}", headers=headers, trust_env=False, timeout=60)


@pytest.fixture
def signing(tmp_path: Path) -> Iterator[Signing]:
    with ExitStack() as stack:
        yield Signing(stack, tmp_path)


def test_a_person_signs_in_and_gets_what_the_claims_say(signing: Signing) -> None:
    browser = signing.browser()
    browser.cookies.set("idgraph-session", "chosen-by-somebody-else", domain="127.0.0.1")
    assert "Continue with the company" in browser.get("/ui/sign-in").text
    shown = browser.get("/ui/sign-in/sso?next=%2Fui%2Fspecs")
    assert (shown.url.path, shown.status_code) == ("/ui/specs", 200)
    assert "ann" in shown.text
    assert "idgraph-session-sso" not in browser.cookies
    browser.get("/ui/specs")
    with signing.database.read() as session:
        row = users.get_user(session, "ann")
        assert (row.role, row.clearance, row.password) == ("publisher", 20, "")
    signing.person("7", "renamed", "officers")
    assert "ann" in signing.browser().get("/ui/sign-in/sso").text
    with signing.database.read() as session:
        assert users.get_user(session, "ann").role == "privacy"
    # The session of before has the rights of now, too.
    assert "ann" in browser.get("/ui/users").text


def test_who_has_no_rights_is_told_and_stays_out(signing: Signing) -> None:
    signing.person("8", "bob", "strangers")
    answer = signing.browser().get("/ui/sign-in/sso")
    assert answer.status_code == 403
    assert "no rights" in answer.text
    with signing.database.read() as session, pytest.raises(Exception, match="no person"):
        users.get_user(session, "bob")


def test_a_name_that_somebody_has_is_not_taken_over(signing: Signing) -> None:
    create_token(signing.database, "root", Role.ADMIN)
    for name in ("root", "x y", "root/key"):
        signing.person("root/key", name, "people")
        assert signing.browser().get("/ui/sign-in/sso").status_code == 403
        assert signing.call(signing.issuer.token(AUDIENCE)).status_code == 401
    assert signing.browser().get("/ui/sign-in/sso").status_code == 403


def test_a_sign_in_that_this_browser_did_not_begin_is_refused(signing: Signing) -> None:
    attacker = signing.browser()
    attacker.follow_redirects = False
    begun = attacker.get("/ui/sign-in/sso")
    back = attacker.get(begun.headers["Location"]).headers["Location"]
    victim = signing.browser()
    assert victim.get(back).status_code == 403
    victim.get("/ui/sign-in/sso")
    assert "idgraph-session" in victim.cookies
    other = signing.browser()
    other.cookies.set("idgraph-session-sso", "guessed /ui", domain="127.0.0.1")
    assert other.get(back).status_code == 403
    assert "idgraph-session" not in other.cookies
    assert signing.browser().get("/ui/sign-in/callback").status_code == 403


def test_signing_in_leads_to_pages_of_this_site_only(signing: Signing) -> None:
    for target in ("https://evil.example", "//evil.example", "/\\evil.example"):
        answer = signing.browser().get("/ui/sign-in/sso", params={"next": target})
        assert str(answer.url).startswith(f"{signing.url}/ui")


def test_a_disabled_person_is_out_of_pages_and_calls(signing: Signing) -> None:
    browser, token = signing.browser(), signing.issuer.token(AUDIENCE)
    assert browser.get("/ui/sign-in/sso").status_code == 200
    assert signing.call(token).json() == {
        "name": "ann", "person": "ann", "role": "publisher", "clearance": 20, "may_reveal": False, "scopes": ["links", "rules"],
    }  # fmt: skip
    with signing.database.write() as edit:
        users.change_user(edit, "ann", None, is_disabled=True)
    assert browser.get("/ui/specs").url.path == "/ui/sign-in"
    assert signing.call(token).status_code == 401
    assert "disabled" in browser.get("/ui/sign-in/sso").text


def test_a_bearer_token_has_the_rights_of_its_claims(signing: Signing) -> None:
    token = signing.issuer.token(AUDIENCE)
    assert signing.call(token, "/v1/specs").status_code == 200
    assert signing.call(token, "/v1/users").status_code == 403
    assert signing.call(signing.issuer.token(CLIENT), "/v1/specs").status_code == 401
    assert signing.call(token[:-4], "/v1/specs").status_code == 401
    officer = signing.issuer.token(AUDIENCE, groups=["officers"])
    assert signing.call(officer, "/v1/users").status_code == 200
    signing.issuer.is_away = True
    unknown = signing.issuer.token(AUDIENCE, kid=None)
    assert signing.call(unknown, "/v1/specs").status_code == 200, "known keys stay in force"


def lower(signing: Signing, name: str = "ann", **rights: object) -> users.UserRecord:
    with signing.database.write("root") as edit:
        wanted = users.PersonRights.model_validate({"role": "viewer"} | rights)
        return users.record_of(users.change_user(edit, name, wanted, None))


def test_what_an_admin_takes_away_no_sign_in_gives_back(signing: Signing) -> None:
    """Found by review: the claims overwrote an admin's decision at the next call."""
    browser, token = signing.browser(), signing.issuer.token(AUDIENCE)
    browser.get("/ui/sign-in/sso")
    lower(signing, clearance=5)
    for _ in range(2):
        signing.browser().get("/ui/sign-in/sso")
        found = signing.call(token).json()
        assert (found["role"], found["clearance"], found["scopes"]) == ("viewer", 5, [])
    # The claims are the most that there is, and less of them is in force at once.
    lower(signing, role="admin", clearance=90, may_reveal=True)
    found = signing.call(token).json()
    assert (found["role"], found["clearance"], found["may_reveal"]) == ("publisher", 20, False)
    lower(signing, role="publisher", clearance=60)
    officer = signing.call(signing.issuer.token(AUDIENCE, groups=["officers"])).json()
    assert (officer["role"], officer["clearance"], officer["may_reveal"]) == ("viewer", 60, False)
    assert officer["scopes"] == ["links", "rules"]
    with signing.database.read() as session:
        stored = users.record_of(users.get_user(session, "ann"))
    assert stored.bound
    assert stored.bound.clearance == 60


def test_an_issuer_that_is_away_says_so(signing: Signing) -> None:
    signing.issuer.is_away = True
    assert signing.browser().get("/ui/sign-in/sso").status_code == 503
    answer = signing.call(signing.issuer.token(AUDIENCE))
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]


def test_the_profile_service_takes_the_same_tokens(signing: Signing, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot())
    pipeline.process(records(20))
    with ExitStack() as stack:
        served = stack.enter_context(served_here(pipeline, []))
        token = create_token(signing.database, "service", Role.SERVICE)
        own = stack.enter_context(MetadataClient(signing.url, token))
        served.service.following = following = stack.enter_context(Following(own))
        served.service.openid = signing.openid
        eventually(following.is_ready)
        client = served.client(signing.issuer.token(AUDIENCE))
        assert client.get("/v1/search/count").json()["count"] > 0
        for wrong in (signing.issuer.token(CLIENT), signing.issuer.token(AUDIENCE, groups=[])):
            assert served.client(wrong).get("/v1/search/count").status_code == 401
        # The text that is digested for a person is nobody's token.
        assert served.client(f"{signing.issuer.url} 7").get("/v1/search/count").status_code == 401
        assert signing.call(signing.issuer.token(AUDIENCE)).status_code == 200

        def clearance() -> int:
            identity = signing.openid.bearer(signing.issuer.token(AUDIENCE))
            assert identity
            caller = following.admitted(identity)
            assert caller
            return caller.clearance

        assert clearance() == 20
        lower(signing, clearance=5)
        eventually(lambda: clearance() == 5)
        with signing.database.write() as edit:
            users.change_user(edit, "ann", None, is_disabled=True)
        eventually(lambda: client.get("/v1/search/count").status_code == 401)


def test_the_settings_describe_an_issuer(tmp_path: Path) -> None:
    file = tmp_path / "idgraph.toml"
    (tmp_path / "own.secret").write_text(f"{SECRET}\n")
    stated = """[oidc]
issuer = "https://login.example"
client_id = "pages"
client_secret_file = "own.secret"
audience = "https://idgraph.example"
[[oidc.rules]]
claim = "groups"
value = "admins"
role = "admin"
clearance = 50
scopes = ["privacy"]
"""
    file.write_text(stated)
    openid = metadata_access.single_sign_on(load(file))
    assert openid
    assert (openid.config.client_secret, openid.config.rules[0].role) == (SECRET, Role.ADMIN)
    for wrong in ("http://login.example", "ldap://x"):
        file.write_text(stated.replace("https://login.example", wrong))
        with pytest.raises(ConfigError, match="issuer"):
            load(file)
    file.write_text(stated.replace('"admin"', '"pipeline"'))
    with pytest.raises(ConfigError):
        load(file)
    file.write_text("")
    assert metadata_access.single_sign_on(load(file)) is None
