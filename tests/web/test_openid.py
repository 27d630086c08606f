"""Tokens of an issuer: which are believed, what they grant, and how its keys are followed."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from idgraph.model.callers import Role, Scope
from idgraph.web.openid import (
    KEYS_SECONDS,
    LEAST_SECONDS,
    ClaimRule,
    NoRightsError,
    OpenId,
    OpenIdConfig,
)
from idgraph.web.refusals import NotReadyError
from sinks.http.openid import HttpIssuer
from tests.support.issuer import CLIENT, SECRET, LocalIssuer, local_issuer

pytestmark = pytest.mark.slow


AUDIENCE = "https://profiles.example"
RULES = (
    ClaimRule("groups", "officers", Role.PRIVACY, 100, may_reveal=True),
    ClaimRule("groups", "people", Role.ANALYST, 20, scopes=frozenset({Scope.OPERATE})),
    ClaimRule("department", "sales", Role.VIEWER),
)
REDIRECT = "http://127.0.0.1/ui/sign-in/callback"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def running() -> Iterator[LocalIssuer]:
    with local_issuer() as found:
        yield found


@pytest.fixture
def issuer(running: LocalIssuer) -> LocalIssuer:
    running.claims = {"sub": "7", "preferred_username": "ann", "groups": ["x", "people"]}
    running.changed, running.is_away = {}, False
    running.asked.clear()
    return running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def openid(issuer: LocalIssuer, clock: Clock) -> OpenId:
    config = OpenIdConfig(issuer.url, CLIENT, RULES, AUDIENCE, SECRET)
    return OpenId(config, HttpIssuer(), clock)


def test_the_first_rule_that_fits_gives_the_rights(openid: OpenId, issuer: LocalIssuer) -> None:
    found = openid.bearer(issuer.token(AUDIENCE))
    assert found
    assert (found.key, found.name) == (f"{issuer.url} 7", "ann")
    assert (found.rule.role, found.rule.clearance) == (Role.ANALYST, 20)
    assert found.all_scopes == {Scope.RULES, Scope.OPERATE}
    officer = openid.bearer(issuer.token([AUDIENCE, "other"], groups=["people", "officers"]))  # type: ignore[arg-type]
    assert officer
    assert officer.rule.role is Role.PRIVACY
    sold = openid.bearer(issuer.token(AUDIENCE, groups=None, department="sales", preferred_username=None))
    assert sold
    assert (sold.name, sold.rule.role) == ("7", Role.VIEWER)


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": []},
        {"groups": "a people b"},
        {"groups": {"people": True}},
        {"groups": None, "roles": ["people", "admin"], "role": "admin"},
    ],
)
def test_without_a_rule_there_are_no_rights(
    openid: OpenId, issuer: LocalIssuer, claims: dict[str, Any]
) -> None:
    assert openid.bearer(issuer.token(AUDIENCE, **claims)) is None


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"sub": None},
        {"exp": None},
        {"exp": int(time.time()) - 120},
        {"nbf": int(time.time()) + 3600},
        {"nonce": "of a sign-in"},
        {"typ": "logout+jwt"},
    ],
)
def test_a_token_that_is_not_for_this_use_is_refused(
    openid: OpenId, issuer: LocalIssuer, claims: dict[str, Any]
) -> None:
    assert openid.bearer(issuer.token(AUDIENCE))
    assert openid.bearer(issuer.token(AUDIENCE, **claims)) is None
    assert openid.bearer(issuer.token("https://another.example")) is None
    assert openid.bearer(issuer.token(CLIENT)) is None


def test_a_clock_that_is_a_little_wrong_is_forgiven(openid: OpenId, issuer: LocalIssuer) -> None:
    assert openid.bearer(issuer.token(AUDIENCE, exp=int(time.time()) - 30))


def part(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def forged(issuer: LocalIssuer) -> Iterator[str]:
    """Tokens that nobody with the key made."""
    good = issuer.token(AUDIENCE)
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    kid = jwt.get_unverified_header(good)["kid"]
    yield f"{head}.{part(claims | {'groups': ['officers']})}.{signature}"
    yield f"{part({'alg': 'none', 'kid': kid})}.{body}."
    yield f"{part({'alg': 'None', 'kid': kid})}.{body}.{signature}"
    # The public key as a shared secret.
    public = issuer.keys[kid].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': kid, 'typ': 'JWT'})}.{body}"
    mac = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), "sha256")).decode().rstrip("=")
    yield f"{signed}.{mac}"
    other = generate_private_key(65537, 2048)
    yield jwt.encode(claims, other, "RS256", {"kid": kid})
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key(), as_dict=True)
    yield jwt.encode(claims, other, "RS256", {"kid": kid, "jwk": jwk})
    yield jwt.encode(claims, other, "RS256", {"kid": "unknown", "jku": "http://127.0.0.1:9/keys"})
    yield "ey.ey.ey"
    yield f"{head}.{body}.{signature}é"


def test_forged_tokens_are_refused(openid: OpenId, issuer: LocalIssuer) -> None:
    for token in forged(issuer):
        assert openid.bearer(token) is None, token
    assert openid.bearer(issuer.token(AUDIENCE))


def test_keys_are_read_once_and_again_for_an_unknown_one_within_a_bound(
    openid: OpenId, issuer: LocalIssuer, clock: Clock
) -> None:
    for _ in range(3):
        assert openid.bearer(issuer.token(AUDIENCE))
    assert issuer.asked.count("/keys") == 1
    kid = f"rotated-{time.time_ns()}"
    issuer.rotate(kid)
    assert openid.bearer(issuer.token(AUDIENCE)) is None, "asked a moment ago"
    clock.now += LEAST_SECONDS + 1
    assert openid.bearer(issuer.token(AUDIENCE))
    assert issuer.asked.count("/keys") == 2
    guessed = jwt.encode({}, generate_private_key(65537, 2048), "RS256", {"kid": "guessed"})
    for _ in range(20):
        assert openid.bearer(guessed) is None
    assert issuer.asked.count("/keys") == 2
    token = issuer.token(AUDIENCE)
    del issuer.keys[kid]
    clock.now += KEYS_SECONDS + 1
    assert openid.bearer(token) is None, "the issuer took the key back"
    assert openid.bearer(issuer.token(AUDIENCE))


def test_an_issuer_that_is_away_is_no_wrong_token(openid: OpenId, issuer: LocalIssuer, clock: Clock) -> None:
    issuer.is_away = True
    for _ in range(2):
        with pytest.raises(NotReadyError):
            openid.bearer(issuer.token(AUDIENCE))
    issuer.is_away = False
    clock.now += LEAST_SECONDS + 1
    assert openid.bearer(issuer.token(AUDIENCE))
    issuer.is_away = True
    clock.now += KEYS_SECONDS + 1
    assert openid.bearer(issuer.token(AUDIENCE)), "known keys stay in force"
    with pytest.raises(NotReadyError):
        OpenId(openid.config, HttpIssuer()).authorization_url("secret", REDIRECT)


def test_without_an_audience_no_bearer_token_is_taken(openid: OpenId, issuer: LocalIssuer) -> None:
    pages_only = OpenId(openid.config._replace(audience=None), HttpIssuer())
    assert pages_only.bearer(issuer.token(AUDIENCE)) is None
    assert pages_only.bearer(issuer.token(CLIENT)) is None


def test_a_configuration_of_another_issuer_is_not_used(openid: OpenId, issuer: LocalIssuer) -> None:
    other = OpenId(openid.config._replace(issuer=f"{issuer.url}/"), HttpIssuer())
    with pytest.raises(NotReadyError):
        other.bearer(issuer.token(AUDIENCE))


def returned(openid: OpenId, secret: str) -> dict[str, str]:
    """What the issuer sends a browser back with."""
    answer = httpx.get(openid.authorization_url(secret, REDIRECT), trust_env=False)
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}


def test_a_person_signs_in_by_code(openid: OpenId, issuer: LocalIssuer) -> None:
    answer = returned(openid, "the browser's")
    found = openid.signed_in("the browser's", answer, REDIRECT)
    assert found
    assert (found.name, found.rule.role) == ("ann", Role.ANALYST)
    assert openid.signed_in("the browser's", answer, REDIRECT) is None, "a code is used once"


def test_an_answer_that_this_browser_did_not_ask_for_is_refused(openid: OpenId) -> None:
    answer = returned(openid, "the attacker's")
    for secret, given in (
        ("the browser's", answer),
        ("", answer),
        ("the attacker's", answer | {"state": ""}),
        ("the attacker's", answer | {"iss": "https://elsewhere.example"}),
        ("the attacker's", {"state": answer["state"], "error": "access_denied"}),
    ):
        assert openid.signed_in(secret, given, REDIRECT) is None
    assert openid.signed_in("the attacker's", answer, "http://127.0.0.1/elsewhere") is None


@pytest.mark.parametrize(
    "changed", [{"nonce": "other"}, {"nonce": None}, {"aud": "other"}, {"azp": "other"}, {"exp": 1}]
)
def test_an_id_token_of_another_sign_in_is_refused(
    openid: OpenId, issuer: LocalIssuer, changed: dict[str, Any]
) -> None:
    issuer.changed = changed
    assert openid.signed_in("s", returned(openid, "s"), REDIRECT) is None


def test_who_signs_in_without_a_rule_is_told(openid: OpenId, issuer: LocalIssuer) -> None:
    issuer.claims["groups"] = ["strangers"]
    with pytest.raises(NoRightsError):
        openid.signed_in("s", returned(openid, "s"), REDIRECT)


class SlowIssuer(HttpIssuer):
    """The issuer, which answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer, self.is_asked = threading.Event(), threading.Event()
        self.may_answer.set()

    def get(self, url: str) -> dict[str, Any]:
        self.is_asked.set()
        assert self.may_answer.wait(60)
        return super().get(url)


def test_a_slow_issuer_holds_up_no_call_whose_key_is_known(issuer: LocalIssuer, clock: Clock) -> None:
    """Found by review: keys were read under the lock that every call takes."""
    slow = SlowIssuer()
    openid = OpenId(OpenIdConfig(issuer.url, CLIENT, RULES, AUDIENCE, SECRET), slow, clock)
    known = issuer.token(AUDIENCE)
    assert openid.bearer(known)
    issuer.keys["later"] = generate_private_key(65537, 2048)
    unknown = issuer.token(AUDIENCE, kid="later")
    slow.may_answer.clear()
    slow.is_asked.clear()
    clock.now = LEAST_SECONDS + 1
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(openid.bearer, unknown)
        assert slow.is_asked.wait(60)
        try:
            assert pool.submit(openid.bearer, known).result(60)
            with pytest.raises(NotReadyError):
                pool.submit(openid.bearer, unknown).result(60)
        finally:
            slow.may_answer.set()
            del issuer.keys["later"]
        assert reading.result(60) is None, "the issuer took the key back before it answered"
