"""The decryption service's client against a real HTTP server: slow, flaky, dead, hostile."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.errors import ConfigError
from sinks.http.decryptor import DecryptionService, HttpDecryptor
from tests.servers.decryption_service import (
    Fault,
    Service,
    compressed,
    cut,
    decryption_service,
    dripping,
    encrypted,
    half,
    status,
)
from tests.support.patience import eventually
from tests.support.processes import free_port

CANARY = b'{"name": "Canary Holly"}'
PLACE = "file:orders/a b\u00e9.jsonl#7"


@pytest.fixture
def served() -> Iterator[tuple[str, Service]]:
    with decryption_service() as served:
        yield served


def client(url: str, **given: Any) -> closing[HttpDecryptor]:
    fitting: dict[str, Any] = {"capacity": 8, "timeout": 60.0, "retries": 3, "max_bytes": 1000, **given}
    return closing(HttpDecryptor(DecryptionService(url, **fitting)))


def test_a_record_is_decrypted_and_its_position_reported(served: tuple[str, Service]) -> None:
    url, service = served
    with client(url) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
    assert answer == (CANARY, "", 0, False)
    assert service.positions == ["file:orders/a%20b%C3%A9.jsonl#7"]
    assert list(service.authorizations) == [None]


def test_the_token_is_read_from_its_file(served: tuple[str, Service], tmp_path: Path) -> None:
    url, service = served
    (tmp_path / "token").write_text("secret-token\n")
    with client(url, token_file=tmp_path / "token") as decryptor:
        decryptor.submit(encrypted(CANARY), PLACE).result()
    assert list(service.authorizations) == ["Bearer secret-token"]
    missing = {"token_file": "none: No such file", "ca_file": "none: FileNotFoundError"}
    for name, reason in missing.items():
        with pytest.raises(ConfigError, match=reason), client(url, **{name: tmp_path / "none"}):
            pass


@pytest.mark.parametrize(
    "fault",
    [status(429), status(503, CANARY), status(408), cut, half],
    ids=["429", "503", "408", "cut", "half"],
)
def test_what_passes_is_asked_again(served: tuple[str, Service], fault: Fault) -> None:
    url, service = served
    service.faults.extend([fault, fault])
    with client(url) as decryptor:
        assert decryptor.submit(encrypted(CANARY), PLACE).result() == (CANARY, "", 2, False)


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        (400, True),
        (413, True),
        (422, True),
        (401, False),
        (403, False),
        (404, False),
        (204, False),
        (302, False),
    ],
)
def test_a_refusal_is_not_asked_again_and_quotes_nothing(
    served: tuple[str, Service], code: int, is_final: bool
) -> None:
    url, service = served
    service.always = status(code, b"" if code == 204 else CANARY)
    with client(url) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
    assert answer == (None, f"the decryption service refused the record with status {code}", 0, is_final)
    assert len(service.positions) == 1


def test_a_slow_service_is_given_up_in_time_and_another_attempt_may_pass(
    served: tuple[str, Service],
) -> None:
    url, service = served
    service.faults.append(dripping)
    with client(url, timeout=0.3, retries=100) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
        assert answer.content == CANARY
        assert answer.retries, "the bound is for the whole answer, not for a byte of it"
    service.always = dripping
    with client(url, timeout=0.3) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
    assert answer == (
        None,
        "the decryption service failed 4 times, at last: no answer within 0.3 s",
        3,
        False,
    )


def test_a_dead_service_is_reported_and_one_that_comes_back_is_used() -> None:
    port = free_port()
    with client(f"http://127.0.0.1:{port}/decrypt", retries=1) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
        assert answer == (None, "the decryption service failed 2 times, at last: ConnectError", 1, False)
    with client(f"http://127.0.0.1:{port}/decrypt", retries=30) as decryptor:
        waiting = decryptor.submit(encrypted(CANARY), PLACE)
        time.sleep(0.3)
        assert not waiting.done()
        with decryption_service(port):
            assert waiting.result(60).content == CANARY


def test_an_answer_that_is_too_large_is_refused(served: tuple[str, Service]) -> None:
    with client(served[0], max_bytes=10) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
    assert answer == (None, "the decrypted record has more than 10 bytes", 0, True)


def test_no_answer_is_inflated(served: tuple[str, Service]) -> None:
    url, service = served
    service.faults.append(compressed(bytes(1_000_000)))
    with client(url) as decryptor:
        answer = decryptor.submit(encrypted(CANARY), PLACE).result()
    assert answer == (None, "the decryption service compressed its answer", 0, False)
    assert list(service.encodings) == ["identity"]


def test_closing_gives_up_what_is_under_way(served: tuple[str, Service]) -> None:
    url, service = served
    ended = threading.Event()
    service.seconds = lambda _: float(ended.wait(120))
    with client(url) as decryptor:
        waiting = [decryptor.submit(encrypted(CANARY), PLACE) for _ in range(20)]
        eventually(lambda: service.positions)
        started = time.monotonic()
    assert time.monotonic() - started < 60, "it has waited for an answer"
    assert all(each.cancelled() for each in waiting)
    ended.set()


def test_closing_leaves_no_connection_that_was_about_to_begin() -> None:
    """A connection is a task of the library below, which waits for what it began; one that was cancelled in its stead,
    before its first step, was reported by Python as never awaited, in whichever test collected it."""
    url = f"http://127.0.0.1:{free_port()}/decrypt"
    gc.freeze()  # What is there already takes seconds to be looked at.
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        for _ in range(10):
            with client(url) as decryptor:
                for _ in range(8):
                    decryptor.submit(encrypted(CANARY), PLACE)
        gc.collect()
    assert [str(each.message) for each in reported if issubclass(each.category, RuntimeWarning)] == []
