"""A Pulsar that asks for tokens and speaks TLS: what it refuses is an error that names what to do."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from idgraph.model.errors import ConfigError, SourceUnavailableError
from idgraph.model.pulsar import PulsarSettings
from sinks.pulsar.admin import HttpPulsarAdmin
from tests.certificates import make_certificate
from tests.servers.pulsar import Pulsar, running_pulsar
from tests.support.processes import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SECRET = b"a secret of the tests, of at least 32 bytes"
TOPIC = "public/default/orders"


def token(role: str, secret: bytes = SECRET) -> str:
    return str(jwt.encode({"sub": role}, secret, "HS256"))


class Guarded(NamedTuple):
    server: Pulsar
    settings: dict[str, Any]
    folder: Path

    def given(self, role: str = "admin", secret: bytes = SECRET, **more: Any) -> PulsarSettings:
        """The settings of somebody with a token."""
        file = self.folder / f"{role}.token"
        file.write_text(token(role, secret))
        return PulsarSettings(**{**self.settings, "token_file": file, "answer_seconds": 10, **more})

    def certified(self, client: str) -> PulsarSettings:
        """The settings of somebody with a certificate, which is made where it is not there."""
        folder = self.folder / client
        folder.mkdir(exist_ok=True)
        files = folder / "tls.crt", folder / "tls.key"
        if not files[0].exists():
            make_certificate(folder)
        own = {"certificate_file": files[0], "certificate_key_file": files[1], "answer_seconds": 10}
        return PulsarSettings(**{**self.settings, **own})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("pulsar")
    certificate, key = make_certificate(folder)
    (client := folder / "client").mkdir()
    broker, web = free_port(), free_port()
    plugin = "org.apache.pulsar"
    settings: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(
            f"{plugin}.broker.authentication.AuthenticationProvider{kind}" for kind in ("Token", "Tls")
        ),
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SECRET).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": "admin,idgraph tests",
        "brokerClientAuthenticationPlugin": f"{plugin}.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('admin')}",
        "brokerServicePortTls": broker,
        "webServicePortTls": web,
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        # The authority of clients' certificates: the one that signed itself.
        "tlsTrustCertsFilePath": make_certificate(client)[0],
    }
    with running_pulsar(folder / "server", token("admin"), **settings) as server:
        server.create("orders", partitions=0)
        secure = {
            "service_url": f"pulsar+ssl://127.0.0.1:{broker}",
            "admin_url": f"https://127.0.0.1:{web}",
            "ca_file": certificate,
        }
        yield Guarded(server, secure, folder)


def values(settings: PulsarSettings, topic: str = TOPIC) -> list[bytes | None]:
    """All that is in a topic."""
    from sinks.pulsar.ranges import PulsarRanges

    with closing(HttpPulsarAdmin(settings)) as admin, closing(PulsarRanges(settings)) as ranges:
        ((partition, found),) = (admin.ledgers(topic) or {}).items()
        spans = found.split(found.first, found.end, 1)
        return [each.value for span in spans for each in ranges.records(topic, partition, *span)]


def test_a_token_over_tls_opens(guarded: Guarded) -> None:
    guarded.server.publish("orders", [b"a", b"b"])
    assert values(guarded.given()) == [b"a", b"b"]


def test_a_wrong_token_is_named_by_its_key(guarded: Guarded) -> None:
    forged = guarded.given(secret=b"another secret, of at least 32 bytes too")
    with closing(HttpPulsarAdmin(forged)) as admin, pytest.raises(ConfigError) as error:
        admin.ledgers(TOPIC)
    assert "(HTTP 401); check [pulsar] token_file" in str(error.value)
    assert forged.token_file is not None
    assert forged.token_file.read_text() not in str(error.value)
    from sinks.pulsar.ranges import PulsarRanges

    with (
        closing(PulsarRanges(forged)) as ranges,
        pytest.raises(
            SourceUnavailableError,
            match=r"correct \[pulsar\] service_url, token_file, certificate_file or ca_file",
        ),
    ):
        list(ranges.records(TOPIC, -1, 0, 1))


def test_a_role_without_rights_is_named(guarded: Guarded) -> None:
    with closing(HttpPulsarAdmin(guarded.given("guest"))) as admin:
        with pytest.raises(ConfigError, match="its role may consume the topics"):
            admin.ledgers(TOPIC)
        with pytest.raises(ConfigError, match="grant-permission"):
            admin.topics("public/default")


def test_an_unknown_authority_is_named(guarded: Guarded) -> None:
    other = guarded.folder / "other"
    other.mkdir(exist_ok=True)
    wrong = guarded.given(ca_file=make_certificate(other)[0])
    with (
        closing(HttpPulsarAdmin(wrong)) as admin,
        pytest.raises(ConfigError, match=r"set \[pulsar\] ca_file"),
    ):
        admin.ledgers(TOPIC)


def test_an_unknown_tenant_is_named(guarded: Guarded) -> None:
    with closing(HttpPulsarAdmin(guarded.given())) as admin:
        with pytest.raises(ConfigError, match="there is no namespace nobody/default in Pulsar"):
            admin.topics("nobody/default")
        assert admin.ledgers("nobody/default/orders") is None


def test_a_clients_certificate_opens(guarded: Guarded) -> None:
    guarded.server.create("certified", partitions=0)
    guarded.server.publish("certified", [b"a"])
    assert values(guarded.certified("client"), "public/default/certified") == [b"a"]


def test_a_certificate_of_another_authority_is_named(guarded: Guarded) -> None:
    from sinks.pulsar.ranges import PulsarRanges

    wrong = guarded.certified("stranger")
    with (
        closing(HttpPulsarAdmin(wrong)) as admin,
        pytest.raises(
            ConfigError, match=r"trust the certificate in \[pulsar\] certificate_file; have an authority sign"
        ),
    ):
        admin.ledgers(TOPIC)
    with (
        closing(PulsarRanges(wrong)) as ranges,
        pytest.raises(SourceUnavailableError, match="token_file, certificate_file or ca_file"),
    ):
        list(ranges.records(TOPIC, -1, 0, 1))
