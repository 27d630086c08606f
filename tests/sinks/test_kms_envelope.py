"""A keyring whose secrets are in AWS KMS, beyond the contract of key providers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idgraph.model.errors import KeyProviderError, KeyServiceError
from sinks.keyring import content as keyring_content
from sinks.keyring import provider as keyring_secrets
from sinks.keyring.provider import KeyringFile
from tests.servers.faulty_proxy import Answer, broken, cut, faulty_proxy, half_an_answer
from tests.servers.kms import Kms, running_kms
from tests.support.key_canary import shown
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.privacy.keys import Secret
from transforms.privacy.sealing import DataKeys

pytestmark = pytest.mark.long


if TYPE_CHECKING:
    from sinks.kms import KmsKey

DATA_KEY = bytes(range(64))


@pytest.fixture(scope="module")
def kms() -> Kms:
    return running_kms()


@pytest.fixture(scope="module")
def key(kms: Kms) -> KmsKey:
    return kms.new_key()


@pytest.fixture
def path(tmp_path: Path, key: KmsKey) -> Path:
    path = tmp_path / "keyring.json"
    opened(path, key, create=True)
    return path


def opened(path: Path, key: KmsKey, create: bool = False, **limits: float) -> KeyringFile:
    from sinks.kms import KmsEnvelope

    envelope = KmsEnvelope(key, **{"retry_seconds": 5.0, **limits})
    return KeyringFile.create(path, envelope) if create else KeyringFile(path, envelope=envelope)


def throttled(_: object, __: bytes) -> Answer:
    return Answer(400, b'{"__type":"ThrottlingException","message":"Rate exceeded"}')


def test_the_file_holds_no_key(path: Path, key: KmsKey) -> None:
    provider = opened(path, key)
    root = provider._opened.secrets.root().reveal()
    assert len(root) == 64
    assert not shown(root, path.read_text())
    entry = json.loads(path.read_bytes())
    assert (entry["format"], len(entry["id"])) == ("idgraph-kms-keyring", 32)


def test_kms_is_asked_once_until_a_limit_is_reached(kms: Kms, path: Path, key: KmsKey) -> None:
    from sinks.kms import KmsEnvelope

    clock = [0.0]
    provider = KeyringFile(path, lambda: clock[0], KmsEnvelope(key, keep_seconds=60, keep_uses=5))
    kms.asked.clear()
    for _ in range(5):
        provider.wrap(Secret(DATA_KEY), b"f")
    assert kms.asked == ["key-1"]
    wrapped = provider.wrap(Secret(DATA_KEY), b"f")
    assert kms.asked == ["key-1", "key-1"], "five uses are over"
    clock[0] = 59.0
    assert provider.unwrap(wrapped, b"f").reveal() == DATA_KEY
    assert kms.asked == ["key-1", "key-1"]
    clock[0] = 60.0
    provider.unwrap(wrapped, b"f")
    assert kms.asked == ["key-1", "key-1", "key-1"], "its time is over"


def test_who_holds_data_keys_has_asked_before(kms: Kms, path: Path, key: KmsKey) -> None:
    keys = DataKeys(opened(path, key), MemoryDataKeys())
    keys.fetch(["f"], create=True)
    other = DataKeys(opened(path, key), keys._store)
    kms.asked.clear()
    with other.hold(["f"]) as held:
        assert kms.asked == ["key-1"]
        assert "f" in held
    kms.asked.clear()
    with other.hold([]):
        assert kms.asked == []


def test_threads_ask_once(kms: Kms, path: Path, key: KmsKey) -> None:
    provider = opened(path, key)
    kms.asked.clear()
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: provider.wrap(Secret(DATA_KEY), b"f"), range(50)))
    assert len(set(keys)) == 1
    assert kms.asked == ["key-1"]


def test_a_disabled_key_is_used_no_longer_than_its_limit(kms: Kms, tmp_path: Path) -> None:
    from sinks.kms import KmsEnvelope

    key, clock = kms.new_key(), [0.0]
    provider = KeyringFile.create(tmp_path / "keyring.json", KmsEnvelope(key))
    provider = KeyringFile(tmp_path / "keyring.json", lambda: clock[0], KmsEnvelope(key, keep_seconds=60))
    wrapped = provider.wrap(Secret(DATA_KEY), b"f")
    kms.disable(key)
    assert provider.unwrap(wrapped, b"f").reveal() == DATA_KEY
    clock[0] = 60.0
    for use in (lambda: provider.unwrap(wrapped, b"f"), lambda: provider.wrap(Secret(DATA_KEY), b"f")):
        with pytest.raises(KeyServiceError, match=r"^KMS key arn:.*: the key is disabled$"):
            use()
    assert provider._opened.secrets.held() == [], "it left memory"
    with pytest.raises(KeyServiceError, match="disabled"):
        provider.begin_rotation(after=1)
    assert len(provider.versions()) == 1, "and nothing was half done"
    kms.enable(key)
    clock[0] += keyring_secrets.REFUSED_SECONDS
    assert provider.unwrap(wrapped, b"f").reveal() == DATA_KEY


def test_a_key_that_is_to_be_deleted_or_another_one_is_refused(kms: Kms, tmp_path: Path) -> None:
    key, path = kms.new_key(), tmp_path / "keyring.json"
    opened(path, key, create=True)
    with pytest.raises(KeyProviderError, match="belongs to another keyring or KMS key"):
        opened(path, kms.new_key()).purpose_key("p")
    kms.admin().schedule_key_deletion(KeyId=key.key.rpartition("/")[2])
    with pytest.raises(KeyServiceError, match="pending deletion"):
        opened(path, key).purpose_key("p")
    with pytest.raises(KeyServiceError, match="there is no such key"):
        opened(tmp_path / "new.json", key._replace(key="alias/nothing"), create=True)
    assert not (tmp_path / "new.json").exists()


@pytest.fixture
def proxied(kms: Kms, key: KmsKey) -> Iterator[tuple[KmsKey, list[object]]]:
    with faulty_proxy(kms.url) as (url, faults):
        yield key._replace(endpoint=url), faults  # type: ignore[misc]


@pytest.mark.parametrize("fault", [throttled, broken, cut, half_an_answer])
def test_what_passes_is_asked_again(path: Path, proxied: tuple[KmsKey, list[object]], fault: object) -> None:
    key, faults = proxied
    provider = opened(path, key)
    faults.extend([fault] * 3)
    wrapped = provider.wrap(Secret(DATA_KEY), b"f")
    assert not faults
    assert provider.unwrap(wrapped, b"f").reveal() == DATA_KEY


def test_throttled_for_too_long_is_reported_and_not_asked_for_each_key(
    path: Path, proxied: tuple[KmsKey, list[object]]
) -> None:
    key, faults = proxied
    provider = opened(path, key, retry_seconds=0.5)
    faults.extend([throttled] * 1000)
    started = time.monotonic()
    for _ in range(100):
        with pytest.raises(KeyServiceError, match="ThrottlingException, for 0 s and all retries"):
            provider.wrap(Secret(DATA_KEY), b"f")
    assert time.monotonic() - started < 100 * 0.5, "the first has waited for all"


def test_a_kms_that_was_killed_and_comes_back(kms: Kms, path: Path, key: KmsKey) -> None:
    provider = opened(path, key, retry_seconds=0.5)
    kms.kill()
    try:
        with pytest.raises(KeyServiceError, match="EndpointConnectionError"):
            provider.wrap(Secret(DATA_KEY), b"f")
    finally:
        kms.start()
    provider = opened(path, key)
    kms.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(provider.wrap, Secret(DATA_KEY), b"f")
        time.sleep(0.3)
        assert not waiting.done()
        kms.start()
        assert opened(path, key).unwrap(waiting.result(30), b"f").reveal() == DATA_KEY


def test_secrets_of_a_keyring_cannot_change_places(path: Path, key: KmsKey, tmp_path: Path) -> None:
    opened(path, key).add()
    document = json.loads(path.read_bytes())
    first, second = document["keys"]
    first["key"], second["key"] = second["key"], first["key"]
    _write(path, document)
    with pytest.raises(
        KeyProviderError, match="the keyring's secret key-2 was altered, or belongs to another"
    ):
        opened(path, key).wrap(Secret(DATA_KEY), b"f")
    other = tmp_path / "other.json"
    opened(other, key, create=True)
    document["root"] = json.loads(other.read_bytes())["root"]
    _write(path, document)
    with pytest.raises(KeyProviderError, match="the keyring's secret root was altered"):
        opened(path, key).purpose_key("p")


def _write(path: Path, document: dict[str, object]) -> None:
    document.pop("checksum")
    document["checksum"] = keyring_content._checksum(document)
    path.write_text(json.dumps(document))


def test_a_bare_keyring_is_taken_over(tmp_path: Path, key: KmsKey) -> None:
    from sinks.kms import KmsEnvelope

    bare = KeyringFile.create(tmp_path / "bare.json")
    bare.begin_rotation(after=1)
    bare.add()
    bare.retire(1)
    wrapped = bare.wrap(Secret(DATA_KEY), b"f")
    path = tmp_path / "keyring.json"
    taken = KeyringFile.take_over(path, KmsEnvelope(key), tmp_path / "bare.json")
    assert taken.versions() == bare.versions()
    assert taken.unwrap(wrapped, b"f").reveal() == DATA_KEY
    assert opened(path, key).purpose_key("blind-index") == bare.purpose_key("blind-index")
    for secret in json.loads((tmp_path / "bare.json").read_bytes())["keys"][1:]:
        assert secret["key"][:20] not in path.read_text()
    with pytest.raises(KeyProviderError, match="never replaced"):
        KeyringFile.take_over(path, KmsEnvelope(key), tmp_path / "bare.json")


def test_a_keyring_of_the_other_kind_is_reported(path: Path, key: KmsKey, tmp_path: Path) -> None:
    with pytest.raises(KeyProviderError, match='it is one for `kind = "kms"` in \\[keys\\]'):
        KeyringFile(path)
    KeyringFile.create(tmp_path / "bare.json")
    with pytest.raises(KeyProviderError, match='it is one for `kind = "file"`'):
        opened(tmp_path / "bare.json", key)
