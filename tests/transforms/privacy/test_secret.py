"""Key bytes are in no repr, comparison, pickle, copy, nor among the local variables that a traceback shows."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark import cloudpickle

from idgraph.model.errors import IdgraphError, KeyProviderError, StoreError
from sinks.keyring.provider import KeyringFile
from tests.support.key_canary import shown
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.keys import Secret, WrappedKey
from transforms.privacy.sealing import DataKeys

KEY = bytes(range(64))
TESTS = Path(__file__).parents[2]


def seen_by_a_debugger(act: Callable[[], object]) -> str:
    """The traceback of what `act` raises, with every frame's local variables but this test's own."""
    with pytest.raises(IdgraphError) as caught:
        act()
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in frames.stack if TESTS not in Path(frame.filename).parents]
    return "".join(text for frame in ours for text in (frame.locals or {}).values())


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    return KeyringFile.create(tmp_path / "keyring.json")


def test_a_secret_shows_nothing_and_stays_where_it_is() -> None:
    secret = Secret(KEY)
    for text in (repr(secret), str(secret), f"{secret}", repr([secret]), repr({"k": secret})):
        assert not shown(KEY, text)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a Secret holds keys"):
            leave(secret)
    assert secret != Secret(KEY)
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        bytes(secret)  # type: ignore[call-overload]
    assert secret.reveal() == KEY


def test_no_closure_that_spark_would_send_takes_a_key_along(keyring: KeyringFile) -> None:
    for holder in (Secret(KEY), keyring, DataKeys(keyring, MemoryDataKeys()), BlindIndex(keyring)):
        with pytest.raises(
            (TypeError, pickle.PicklingError), match="holds keys and is neither pickled nor copied"
        ):
            cloudpickle.dumps(lambda holder=holder: holder)


def test_random_secrets_differ() -> None:
    made = [secret.reveal() for secret in Secret.several(100, 64)]
    assert len({*made}) == 100
    assert {len(each) for each in made} == {64}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Secret:
    """The only data key that is made in a test."""
    secret = Secret(KEY)
    monkeypatch.setattr(Secret, "several", lambda count, _: [secret] * count)
    return secret


def test_a_new_key_is_in_no_frame_when_the_store_fails(keyring: KeyringFile, made: Secret) -> None:
    class Failing(MemoryDataKeys):
        def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
            raise StoreError("away")

    reported = seen_by_a_debugger(lambda: DataKeys(keyring, Failing()).fetch(["a"], create=True))
    assert "<Secret>" in reported, "the frame that has it was looked at"
    assert not shown(KEY, reported)


def test_a_new_key_is_in_no_frame_when_the_provider_fails(
    keyring: KeyringFile, made: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> WrappedKey:
        raise KeyProviderError("away")

    monkeypatch.setattr("sinks.keyring.provider._Opened.wrap", away)
    reported = seen_by_a_debugger(lambda: DataKeys(keyring, MemoryDataKeys()).fetch(["a"], create=True))
    assert "<Secret>" in reported
    assert not shown(KEY, reported)


def test_a_keyring_that_is_refused_is_in_no_frame(keyring: KeyringFile, tmp_path: Path) -> None:
    path = tmp_path / "keyring.json"
    document = json.loads(path.read_bytes())
    secrets = [document["root"], document["keys"][0]["key"]]
    path.write_text(json.dumps({**document, "version": 99}))
    reported = seen_by_a_debugger(lambda: KeyringFile(path))
    assert "keyring.json" in reported
    assert not any(secret[:16] in reported for secret in secrets)
