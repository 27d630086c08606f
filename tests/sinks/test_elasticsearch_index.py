"""Busy, broken and dead servers, and what is left in files, between an index and a real Elasticsearch."""

from __future__ import annotations

import json
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("elasticsearch", reason="elasticsearch is not installed: pip install -e .[elasticsearch]")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from idgraph.model.errors import ConfigError, ProfileIndexError, QueryCostError
from idgraph.model.fragments import Kind, Register
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.queries import FullText, Query, Term
from idgraph.model.store import NEW, FragmentWrite
from merge.documents import document
from merge.fragments import FragmentState
from sinks.elasticsearch import bulk as elasticsearch_bulk
from sinks.elasticsearch import client as elasticsearch_client
from sinks.elasticsearch.client import API_KEY, IndexLocation
from sinks.elasticsearch.index import ElasticsearchProfileIndex
from tests.contracts.implementations import hashed_name
from tests.projecting import sweep
from tests.properties.references import ORIGIN
from tests.servers.elasticsearch import create, in_files, place_of_index, require_elasticsearch
from tests.servers.faulty_proxy import (
    Answer,
    Fault,
    broken,
    busy,
    cut,
    faulty_proxy,
    half_an_answer,
    lost_answer,
)
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.processes import free_port
from tests.support.stores import elasticsearch

pytestmark = pytest.mark.long


Proxied = tuple[IndexLocation, deque[Fault]]


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    real = place_of_index(tmp_path)
    with faulty_proxy(real.url) as (url, faults):
        yield real._replace(url=url), faults


@pytest.fixture
def index(proxied: Proxied) -> Iterator[ElasticsearchProfileIndex]:
    opened = ElasticsearchProfileIndex(proxied[0], hashed_name)
    # The first look at the index is over.
    assert opened.count(Query()) == 0
    yield opened
    opened.close()


def documents(number: int, version: int = 1) -> list[IndexDocument]:
    return [IndexDocument(f"a:{each}", version, {"x": "word", "n": each}) for each in range(number)]


def busy_for(chosen: int, status: int = 429) -> Fault:
    """A server that had too much to do for one document of a request."""

    def fault(send: Callable[[bytes], Answer], body: bytes) -> Answer:
        lines = body.splitlines(keepends=True)
        others = lines[: 2 * chosen] + lines[2 * chosen + 2 :]
        answer = send(b"".join(others))
        reported = json.loads(answer.body)
        error = {"type": "es_rejected_execution_exception", "reason": "value secret"}
        reported["items"].insert(chosen, {"index": {"status": status, "error": error}})
        return answer._replace(body=json.dumps(reported).encode())

    return fault


@pytest.mark.parametrize("fault", [busy, broken, cut, half_an_answer, lost_answer])
def test_what_passes_is_tried_again(index: ElasticsearchProfileIndex, proxied: Proxied, fault: Fault) -> None:
    faults = proxied[1]
    faults.extend([fault] * 2)
    assert index.put(documents(3)) == {}
    faults.extend([fault] * 2)
    assert index.search(Query((Term("x", "word"),))).ids == ["a:0", "a:1", "a:2"]
    faults.extend([fault] * 2)
    index.erase({"a:0": 1})
    assert not faults
    assert index.count(Query()) == 2


@pytest.mark.parametrize("status", [429, 503])
def test_a_document_that_was_too_much_is_given_again(
    index: ElasticsearchProfileIndex, proxied: Proxied, status: int
) -> None:
    proxied[1].append(busy_for(1, status))
    assert index.put(documents(3)) == {}
    assert index.count(Query()) == 3


def test_a_document_that_is_refused_is_reported_by_its_id_and_holds_no_other(
    index: ElasticsearchProfileIndex, proxied: Proxied
) -> None:
    too_long = IndexDocument("b:" + "x" * 40_000, 1, {"x": "word"})
    refused = index.put([*documents(2), too_long])
    assert refused == {too_long.id: "document_parsing_exception"}
    assert index.count(Query()) == 2


def test_busy_for_too_long_is_an_index_error_without_values(
    index: ElasticsearchProfileIndex, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch_client, "BUSY_SECONDS", 0.2)
    proxied[1].extend([busy] * 100)
    with pytest.raises(
        ProfileIndexError, match=r"^Elasticsearch index t\w+: busy, or blocked, for 0 s and all retries$"
    ):
        index.put(documents(1))
    proxied[1].clear()
    assert index.put(documents(1)) == {}


def test_a_request_that_is_too_large_is_cut(
    index: ElasticsearchProfileIndex, proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(_: Callable[[bytes], Answer], __: bytes) -> Answer:
        return Answer(413, b"")

    def passed(send: Callable[[bytes], Answer], body: bytes) -> Answer:
        return send(body)

    # First it asks whether a version is being made. Then once for all, once for the first half.
    proxied[1].extend([passed, too_large, too_large])
    assert index.put(documents(8)) == {}
    assert index.count(Query()) == 8
    monkeypatch.setattr(elasticsearch_bulk, "REQUEST_BYTES", 300)
    assert index.put(documents(20, 2)) == {}
    assert index.count(Query()) == 20


def test_who_has_no_access_is_reported_so_and_what_answers_instead_too(
    index: ElasticsearchProfileIndex, proxied: Proxied
) -> None:
    def refused(_: Callable[[bytes], Answer], __: bytes) -> Answer:
        return Answer(401, b'{"error": {"type": "security_exception", "reason": "user secret"}}')

    proxied[1].append(refused)
    with pytest.raises(ProfileIndexError, match=r"the credentials are missing or not valid$"):
        index.put(documents(1))
    proxied[1].append(lambda _, __: Answer(200, b"{}"))
    with pytest.raises(ProfileIndexError, match=r"the server that answers there is no Elasticsearch$"):
        index.put(documents(1))


def test_an_index_that_was_not_made_is_reported_with_the_command_and_is_not_made(tmp_path: Path) -> None:
    place = place_of_index(tmp_path)._replace(name="never-made")
    missing = ElasticsearchProfileIndex(place, hashed_name)
    for use in (lambda: missing.put(documents(1)), lambda: missing.count(Query())):
        with pytest.raises(ProfileIndexError, match=r"never-made: .*`idgraph index create` makes it"):
            use()
    missing.close()


def test_a_server_that_is_away_is_reported_and_then_left_alone_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    away = ElasticsearchProfileIndex(IndexLocation(f"http://127.0.0.1:{free_port()}", "away"), hashed_name)
    problem = r"away: no whole answer from http://127.0.0.1:\d+, is it up\? \(ConnectionError\)"
    for _ in range(2):
        with pytest.raises(ProfileIndexError, match=problem):
            away.put(documents(1))
        assert len(pauses) == elasticsearch_client.AWAY.retries
    away.close()


def test_a_server_that_is_killed_loses_nothing_and_the_outbox_waits(tmp_path: Path) -> None:
    store = MemoryProfileStore()
    rules = IndexRules(lambda _: True)

    def write(number: int) -> None:
        state = FragmentState()
        state.registers["x"] = Register(ORIGIN, Kind.PLAIN, f"word{number}")
        state.normalise()
        store.write([FragmentWrite(f"a:{number}", NEW, state.encode(), frozenset())])

    with elasticsearch(tmp_path / "node") as node:
        place = IndexLocation(node.url, "killed")
        create(place)
        index = ElasticsearchProfileIndex(place, hashed_name)
        write(1)
        assert sweep(store, index, rules) == 0
        node.process.kill()
        node.process.wait()
        write(2)
        with pytest.raises(ProfileIndexError):
            sweep(store, index, rules)
        assert len(store.outbox()) == 1
    index.close()
    with elasticsearch(tmp_path / "node", int(node.url.rpartition(":")[2])):
        index = ElasticsearchProfileIndex(place, hashed_name)
        assert sweep(store, index, rules) == 0
        assert store.outbox() == []
        assert index.search(Query()).ids == ["a:1", "a:2"]
        index.close()


def test_what_was_erased_is_in_no_file_and_what_policy_protects_never_was(tmp_path: Path) -> None:
    index = ElasticsearchProfileIndex(place_of_index(tmp_path), hashed_name)
    state = FragmentState()
    for path, value in (("open", "canaryopen"), ("hidden", "canaryhidden")):
        state.registers[path] = Register(ORIGIN, Kind.PLAIN, value)
    rules = IndexRules({"open"}.__contains__)
    index.put([document("a:canaryname", 1, state, rules), *documents(3)])
    index._client.call(lambda api: api.indices.flush(index=index._alias, force=True))
    assert in_files(b"canaryopen")
    assert not in_files(b"canaryhidden")
    assert index.erase({"a:canaryname": 1}) == 1
    index.compact()
    assert not in_files(b"canaryopen")
    assert not in_files(b"canaryname")
    assert index.count(Query()) == 3
    index.close()


def test_new_attributes_change_no_mapping(tmp_path: Path) -> None:
    index = ElasticsearchProfileIndex(place_of_index(tmp_path), hashed_name)

    def mapping() -> Any:
        return index._client.call(lambda api: api.indices.get_mapping(index=index._alias))

    before = mapping()
    fields: dict[str, Any] = {f"attribute{number}": number for number in range(10_000)}
    assert index.put([IndexDocument("a", 1, fields), IndexDocument("b", 1, {"attribute1": "text"})]) == {}
    assert mapping() == before
    assert index.search(Query((Term("attribute9999", 9999),))).ids == ["a"]
    assert index.search(Query((Term("attribute1", "text"),))).ids == ["b"]
    index.close()


def test_credentials_go_by_https_only_and_into_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEY, "secret")
    index = ElasticsearchProfileIndex(IndexLocation("http://127.0.0.1:1", "a"), hashed_name)
    with pytest.raises(ConfigError, match="by https only") as reported:
        index.put(documents(1))
    assert "secret" not in str(reported.value)


def test_a_certificate_is_trusted_by_its_file_only(tmp_path: Path) -> None:
    real = place_of_index(tmp_path)
    certificate = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with faulty_proxy(require_elasticsearch(), context) as (url, _):
        trusting = ElasticsearchProfileIndex(real._replace(url=url, ca_file=str(certificate)), hashed_name)
        assert trusting.put(documents(2)) == {}
        trusting.close()
        doubting = ElasticsearchProfileIndex(real._replace(url=url), hashed_name)
        with pytest.raises(ProfileIndexError, match="certificate is not one to trust; see `ca_file`"):
            doubting.put(documents(1))
        doubting.close()


def _certificate(folder: Path) -> Path:
    """Key and certificate of localhost, which only it vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "localhost.pem"
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none)
    file.write_bytes(private + certificate.public_bytes(encoding))
    return file


def test_a_search_beyond_its_time_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    with closing(ElasticsearchProfileIndex(place_of_index(tmp_path), hashed_name)) as index:
        assert (
            index.put([IndexDocument(f"u:{n}", 1, {"x": f"word{n} abc{n % 977}"}) for n in range(20_000)])
            == {}
        )
        slow = [{"regexp": {"words": f".*{n}.*{n % 7}.*[a-z]+{n % 3}.*"}} for n in range(300)]
        with pytest.raises(QueryCostError):
            index._client.call(
                lambda api: api.search(
                    index=index._alias,
                    query={"bool": {"should": slow}},
                    timeout="1nanos",
                    allow_partial_search_results=False,
                )
            )
        # Others go on.
        assert index.count(Query((FullText("word7"),))) == 1
