"""The parts of a site: the real implementations, by one keyring for all runs."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from idgraph.model.index import ProfileIndex
from idgraph.model.store import ProfileStore
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from tests.servers.dynamodb import emptied_place, place
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore
from transforms.privacy.keys import DataKeyStore
from transforms.privacy.protected_names import TombstoneNames


@cache
def provider() -> KeyringFile:
    """One keyring for all runs, of today and tomorrow: by other keys fragments have other ids and stand in another order."""
    folder = _kept_folder()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("secrets.token_bytes", random.Random(1).randbytes)
        return KeyringFile.create(Path(folder.name) / "keyring.json")


@cache
def _kept_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@dataclass(frozen=True)
class Adapters:
    """What a site is made of."""

    store: ProfileStore
    index: ProfileIndex
    key_store: DataKeyStore


def memory(_: Path) -> Adapters:
    """All of it in memory."""
    return Adapters(MemoryProfileStore(TombstoneNames(provider())), MemoryProfileIndex(), MemoryDataKeys())


def sqlite(folder: Path) -> Adapters:
    """All of it in files."""
    names = TombstoneNames(provider())
    return Adapters(
        SqliteProfileStore(folder / "profiles.db", names),
        TantivyProfileIndex(folder / "index", names),
        SqliteDataKeys(folder / "data-keys.db"),
    )


def dynamodb(folder: Path) -> Adapters:
    """Fragments and keys in DynamoDB Local, emptied for the first that is opened there, the index in a file."""
    from sinks.dynamodb.data_keys import DynamoDataKeys
    from sinks.dynamodb.profiles import DynamoProfileStore

    index, names = folder / "index", TombstoneNames(provider())
    opened = folder / "opened"
    at = (place if opened.exists() else emptied_place)(Path(_kept_folder().name))
    opened.touch()
    return Adapters(DynamoProfileStore(at, names), TantivyProfileIndex(index, names), DynamoDataKeys(at))
