"""OpenID Connect: bearer tokens of an issuer for both services, and signing in to the pages by authorization code with PKCE.

A token is believed if a key of the issuer signed it by an asymmetric algorithm, for our audience, and it has not expired. Rights come
from its claims by rules; without a rule that fits there are none.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

from idgraph.model.callers import SCOPES, Role, Scope
from idgraph.model.errors import MetadataError
from idgraph.model.transport import is_private
from idgraph.web.refusals import NotReadyError

if TYPE_CHECKING:
    import jwt

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SKEW_SECONDS = 60
KEYS_SECONDS = 3600.0
"""So long keys are used before they are read again: one that the issuer took back ends then."""
LEAST_SECONDS = 10.0
"""Unknown keys make the keys be read again, at most so often."""
MOST_CHARACTERS = 16_384
_ACCESS_TYPES = ("jwt", "at+jwt", "application/at+jwt")


class Issuer(Protocol):
    """The issuer over HTTP. Both raise MetadataError."""

    def get(self, url: str) -> dict[str, Any]: ...
    def post(self, url: str, form: Mapping[str, str], secret: tuple[str, str] | None) -> dict[str, Any]: ...


class ClaimRule(NamedTuple):
    """Rights of whoever has this value in this claim, or among its values."""

    claim: str
    value: str
    role: Role
    clearance: int = 0
    may_reveal: bool = False
    scopes: frozenset[Scope] = frozenset()


class OpenIdConfig(NamedTuple):
    """`audience` is that of bearer tokens; without one none are taken. `rules` are tried in their order."""

    issuer: str
    client_id: str
    rules: Sequence[ClaimRule]
    audience: str | None = None
    client_secret: str | None = None
    name_claim: str = "preferred_username"
    redirect_url: str | None = None
    title: str = "single sign-on"


class Identity(NamedTuple):
    """A person as an issuer names them. `key` is issuer and subject, which never change; the `name` is for people to
    read."""

    key: str
    subject: str
    name: str
    rule: ClaimRule
    expires: datetime

    @property
    def all_scopes(self) -> frozenset[Scope]:
        """With those of the role."""
        return self.rule.scopes | SCOPES.get(self.rule.role, frozenset())


class NoRightsError(MetadataError):
    """The issuer knows this person, and no rule gives them rights."""


def is_signed_token(token: str) -> bool:
    """Whether this may be a token of an issuer; our own have no two dots."""
    return token.startswith("ey") and token.count(".") == 2 and len(token) <= MOST_CHARACTERS


class OpenId:
    """One issuer. Safe for several threads; methods block."""

    def __init__(
        self, config: OpenIdConfig, issuer: Issuer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = config
        self._issuer = issuer
        self._clock = clock
        self._lock = threading.Lock()
        self._endpoints: dict[str, str] = {}
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read = self._tried = float("-inf")
        self._is_reading = False

    def bearer(self, token: str) -> Identity | None:
        """The person of an access token; None for one that is not valid here, or gives no rights. Raises
        NotReadyError."""
        if self.config.audience is None:
            return None
        claims = self._claims(token, self.config.audience, _ACCESS_TYPES)
        # An ID token says who signed in somewhere, and is no key to this service.
        if claims is None or "nonce" in claims:
            return None
        try:
            return self._identity(claims)
        except NoRightsError:
            return None

    def authorization_url(self, secret: str, redirect: str) -> str:
        """The address at which the person signs in. From `secret`, which their browser keeps, come state, nonce and
        verifier. Raises NotReadyError."""
        self._discover()
        challenge = urlsafe_b64encode(hashlib.sha256(_derived(secret, "verifier").encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": redirect,
            "scope": "openid profile email",
            "state": _derived(secret, "state"),
            "nonce": _derived(secret, "nonce"),
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        endpoint = self._endpoints["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def signed_in(self, secret: str, answer: Mapping[str, str], redirect: str) -> Identity | None:
        """The person who came back from the issuer with `answer`, the parameters of the URL; None where that is not
        what this browser was sent for. Raises NoRightsError, NotReadyError."""
        state = answer.get("state", "").encode()
        if not secret or not hmac.compare_digest(state, _derived(secret, "state").encode()):
            return None
        if answer.get("iss", self.config.issuer) != self.config.issuer or not answer.get("code"):
            return None
        self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": redirect,
            "client_id": self.config.client_id,
            "code_verifier": _derived(secret, "verifier"),
        }
        own = self.config.client_secret
        try:
            given = self._issuer.post(
                self._endpoints["token_endpoint"], form, (self.config.client_id, own) if own else None
            )
        except MetadataError as error:
            log.warning("single sign-on: %s", error)
            return None
        claims = self._claims(str(given.get("id_token", "")), self.config.client_id, ("jwt",))
        nonce = "" if claims is None else str(claims.get("nonce", ""))
        if claims is None or not hmac.compare_digest(nonce.encode(), _derived(secret, "nonce").encode()):
            return None
        if claims.get("azp", self.config.client_id) != self.config.client_id:
            return None
        return self._identity(claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        subject, expires = str(claims["sub"]), datetime.fromtimestamp(claims["exp"], UTC)
        name = str(claims.get(self.config.name_claim) or subject)
        for rule in self.config.rules:
            found = claims.get(rule.claim)
            if rule.value in (found if isinstance(found, list) else [found]):
                return Identity(f"{self.config.issuer} {subject}", subject, name, rule, expires)
        raise NoRightsError("your account has no rights here: no rule of [[oidc.rules]] fits its claims")

    def _claims(self, token: str, audience: str, types: Sequence[str]) -> dict[str, Any] | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS or str(header.get("typ", "jwt")).lower() not in types:
                return None
            key = self._key(header.get("kid"))
            if key is None:
                return None
            return dict(
                jwt.decode(
                    token,
                    key.key,
                    algorithms=list(ALGORITHMS),
                    audience=audience,
                    issuer=self.config.issuer,
                    leeway=SKEW_SECONDS,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            # Without its text, which may hold parts of the token.
            log.info("single sign-on: a token was refused (%s)", type(error).__name__)
            return None

    def _key(self, kid: str | None) -> jwt.PyJWK | None:
        """The key of a token, read again where it is not known, or old. Nobody waits for a slow issuer but the call that reads.
        Raises NotReadyError."""
        with self._lock:
            now = self._clock()
            is_old = now - self._read > KEYS_SECONDS
            is_due = (
                (kid not in self._keys or is_old)
                and now - self._tried > LEAST_SECONDS
                and not self._is_reading
            )
            if is_due:
                self._tried, self._is_reading = now, True
        if is_due:
            try:
                keys = self._load()
                with self._lock:
                    self._keys, self._read = keys, now
            except MetadataError as error:
                log.warning("single sign-on: %s", error)
                if kid not in self._keys:
                    raise NotReadyError("the issuer of the token does not answer") from None
            finally:
                self._is_reading = False
        if not self._keys or (kid not in self._keys and self._is_reading):
            raise NotReadyError("the issuer of the token does not answer")
        return self._keys.get(kid)

    def _load(self) -> dict[str | None, jwt.PyJWK]:
        import jwt

        self._read_endpoints()
        document = self._issuer.get(self._endpoints["jwks_uri"])
        try:
            found = [
                each
                for each in jwt.PyJWKSet.from_dict(document).keys
                if each.key_type in ("RSA", "EC", "OKP")
            ]
        except jwt.PyJWTError as error:
            raise MetadataError(f"{self.config.issuer}: its keys cannot be read") from error
        signing = [each for each in found if each.public_key_use in (None, "sig")]
        keys: dict[str | None, jwt.PyJWK] = {each.key_id: each for each in signing}
        return keys | ({None: signing[0]} if len(signing) == 1 else {})

    def _discover(self) -> None:
        try:
            if not self._endpoints:
                self._read_endpoints()
        except MetadataError as error:
            log.warning("single sign-on: %s", error)
            raise NotReadyError("single sign-on does not answer; try again") from None

    def _read_endpoints(self) -> None:
        issuer = self.config.issuer
        document = self._issuer.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise MetadataError(f"{issuer}: its configuration is that of another issuer")
        found = {
            each: str(document.get(each, ""))
            for each in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        }
        if not all(is_private(url) for url in found.values()):
            raise MetadataError(f"{issuer}: an endpoint is missing or without https")
        self._endpoints = found


def _derived(secret: str, purpose: str) -> str:
    mac = hmac.digest(secret.encode("utf-8", "surrogatepass"), purpose.encode(), "sha256")
    return urlsafe_b64encode(mac).decode().rstrip("=")
