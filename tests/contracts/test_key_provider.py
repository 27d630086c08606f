"""The promises of every key provider. A new one adds a line to `PROVIDERS`."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idgraph.model.errors import KeyInUseError, KeyProviderError, UnknownKeyVersionError
from sinks.keyring.provider import KeyringFile
from tests.servers.kms import Kms, running_kms
from tests.support.key_canary import shown
from transforms.privacy.keys import RotatingKeyProvider, Secret

if TYPE_CHECKING:
    from sinks.kms import KmsKey

DATA_KEY = bytes(range(64))
Opener = Callable[[], RotatingKeyProvider]


def _keyring_file(directory: Path) -> Opener:
    KeyringFile.create(directory / "keyring.json")
    return lambda: KeyringFile(directory / "keyring.json")


def _in_kms(directory: Path) -> Opener:
    kms = running_kms()
    from sinks.kms import KmsEnvelope

    # One for all: another keyring under the same KMS key must not open its keys either.
    key = _kms_key(kms)
    KeyringFile.create(directory / "keyring.json", KmsEnvelope(key))
    return lambda: KeyringFile(directory / "keyring.json", envelope=KmsEnvelope(key))


@functools.cache
def _kms_key(kms: Kms) -> KmsKey:
    return kms.new_key()


PROVIDERS: dict[str, Callable[[Path], Opener]] = {
    "keyring file": _keyring_file,
    "keyring in AWS KMS": _in_kms,
}
"""How to set a provider up in an empty directory; what comes back opens it, each time as a new process would."""


@pytest.fixture(params=PROVIDERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return PROVIDERS[request.param](tmp_path)


@pytest.fixture
def other(request: pytest.FixtureRequest, opener: Opener, tmp_path: Path) -> RotatingKeyProvider:
    """A provider of the same kind with other keys."""
    directory = tmp_path / "other"
    directory.mkdir()
    kind = request.node.callspec.params["opener"]
    return PROVIDERS[kind](directory)()


def test_a_wrapped_key_is_unwrapped_by_every_process(opener: Opener) -> None:
    wrapped = opener().wrap(Secret(DATA_KEY), b"user_id:480")
    assert opener().unwrap(wrapped, b"user_id:480").reveal() == DATA_KEY


def test_wrapping_hides_the_key(opener: Opener) -> None:
    wrapped = opener().wrap(Secret(DATA_KEY), b"user_id:480")
    assert not shown(DATA_KEY, wrapped.wrapped.decode("latin-1"))


@pytest.mark.parametrize("context", [b"user_id:481", b"", b"user_id:4800"])
def test_a_key_is_unwrapped_only_for_its_context(opener: Opener, context: bytes) -> None:
    provider = opener()
    wrapped = provider.wrap(Secret(DATA_KEY), b"user_id:480")
    with pytest.raises(KeyProviderError):
        provider.unwrap(wrapped, context)


def test_every_altered_byte_and_every_cut_is_refused(opener: Opener) -> None:
    provider = opener()
    wrapped = provider.wrap(Secret(DATA_KEY), b"f")
    for position in range(len(wrapped.wrapped)):
        altered = bytearray(wrapped.wrapped)
        altered[position] ^= 0x01
        with pytest.raises(KeyProviderError):
            provider.unwrap(wrapped._replace(wrapped=bytes(altered)), b"f")
        with pytest.raises(KeyProviderError):
            provider.unwrap(wrapped._replace(wrapped=wrapped.wrapped[:position]), b"f")


@pytest.mark.parametrize("version", [0, -1, 2, 2**70])
def test_an_unknown_key_version_is_named(opener: Opener, version: int) -> None:
    provider = opener()
    wrapped = provider.wrap(Secret(DATA_KEY), b"f")._replace(kek_version=version)
    with pytest.raises(KeyProviderError, match=f"version {version}$"):
        provider.unwrap(wrapped, b"f")


def test_a_rotation_makes_one_new_current_version(opener: Opener) -> None:
    provider = opener()
    old = provider.wrap(Secret(DATA_KEY), b"f")
    for asked in (provider, opener()):
        assert asked.begin_rotation(after=1) == 2, "the second one finds it made"
    assert [(key.version, key.status) for key in opener().versions()] == [(1, "retiring"), (2, "current")]
    new = provider.rewrap(old, b"f")
    assert (old.kek_version, new.kek_version) == (1, 2)
    for asked in (provider, opener()):
        assert asked.unwrap(old, b"f").reveal() == asked.unwrap(new, b"f").reveal() == DATA_KEY


def test_rewrapping_checks_the_context(opener: Opener) -> None:
    provider = opener()
    with pytest.raises(KeyProviderError):
        provider.rewrap(provider.wrap(Secret(DATA_KEY), b"f"), b"g")


def test_another_process_learns_the_current_version_when_asked_to(opener: Opener) -> None:
    provider, other = opener(), opener()
    other.begin_rotation(after=1)
    provider.refresh()
    assert provider.wrap(Secret(DATA_KEY), b"f").kek_version == 2


def test_a_retired_version_is_gone_for_every_process_and_stays_listed(opener: Opener) -> None:
    provider = opener()
    old = provider.wrap(Secret(DATA_KEY), b"f")
    provider.begin_rotation(after=1)
    provider.retire(1)
    provider.retire(1)
    provider.mark_retiring(1)
    for asked in (provider, opener()):
        assert [(key.version, key.status) for key in asked.versions()] == [(1, "retired"), (2, "current")]
        assert asked.versions()[0].retired is not None
        with pytest.raises(UnknownKeyVersionError, match="version 1 was retired"):
            asked.unwrap(old, b"f")
    assert provider.purpose_key("blind-index") == opener().purpose_key("blind-index")


def test_what_may_not_be_retired(opener: Opener) -> None:
    provider = opener()
    for refused in (provider.mark_retiring, provider.retire):
        with pytest.raises(KeyInUseError, match="version 1 is the current one"):
            refused(1)
        with pytest.raises(UnknownKeyVersionError, match="version 7"):
            refused(7)
    assert [(key.version, key.status) for key in opener().versions()] == [(1, "current")]


def test_providers_do_not_open_each_others_keys(opener: Opener, other: RotatingKeyProvider) -> None:
    with pytest.raises(KeyProviderError):
        other.unwrap(opener().wrap(Secret(DATA_KEY), b"f"), b"f")
    assert other.purpose_key("blind-index") != opener().purpose_key("blind-index")


def test_purpose_keys_are_stable_and_independent(opener: Opener) -> None:
    keys = [opener().purpose_key(purpose) for purpose in ("blind-index", "dead-letters", "", "blind-index ")]
    assert [len(key) for key in keys] == [64] * 4
    assert len({key[start : start + 32] for key in keys for start in (0, 32)}) == 8
    assert keys[0] == opener().purpose_key("blind-index")


def test_a_provider_shows_no_keys_and_stays_in_its_process(opener: Opener) -> None:
    provider = opener()
    for text in (repr(provider), str(provider), f"{provider}", repr(vars(provider))):
        assert not shown(provider.purpose_key("blind-index"), text)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leave(provider)


def test_errors_hold_no_keys_and_no_context(opener: Opener) -> None:
    provider = opener()
    wrapped = provider.wrap(Secret(DATA_KEY), b"canary-context")
    for damaged in (wrapped._replace(kek_version=9), wrapped._replace(wrapped=b""), wrapped):
        with pytest.raises(KeyProviderError) as caught:
            provider.unwrap(damaged, b"canary-elsewhere")
        reported = f"{caught.value!s} {caught.value!r} {caught.value.__context__!r}"
        assert "canary" not in reported
        assert not shown(DATA_KEY, reported)
        assert not shown(wrapped.wrapped, reported)
