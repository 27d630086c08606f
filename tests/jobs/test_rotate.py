"""Rotation: beside workers, beside another rotation, killed at every step; retirement closes every race."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from idgraph.jobs.rotate import Rotation, known_counts, retire
from idgraph.model.errors import KeyInUseError, KeyProviderError, StoreError, UnknownKeyVersionError
from idgraph.model.jobs import Progress
from idgraph.model.stamps import Stamp
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from tests.contracts.processes import finish, start
from tests.jobs import rotation_killed
from tests.support.forks import Forks
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.steps import ended, steps
from transforms.privacy.keys import DataKeyStore, WrappedKey
from transforms.privacy.sealing import DataKeys

NAMES = [f"user_id:{number:02}" for number in range(20)]
PLACE = ("identity.email", Stamp(0, 1, "shop", "event-1"))


class Watched(MemoryDataKeys):
    """Runs `before_put` once before a write and `after_get` once after a read; counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.before_put: Callable[[], None] = lambda: None
        self.after_get: Callable[[], None] = lambda: None

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        self.reads += 1
        found = super().get(fragment_ids)
        self.after_get, then = lambda: None, self.after_get
        then()
        return found

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        self.before_put, first = lambda: None, self.before_put
        first()
        return super().put_absent(keys)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keyring.json"


@pytest.fixture
def keyring(path: Path) -> KeyringFile:
    return KeyringFile.create(path)


@pytest.fixture
def store() -> Watched:
    return Watched()


def seal_all(provider: KeyringFile, store: DataKeyStore, names: list[str] = NAMES) -> dict[str, str]:
    keys = DataKeys(provider, store).fetch(names, create=True)
    return {name: key.seal(name, *PLACE) for name, key in keys.items()}


def test_a_version_that_is_made_meanwhile_is_not_one_that_never_was(
    path: Path, keyring: KeyringFile, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: two rotations at once share the work, and the second said that its keyring was too old."""
    seal_all(keyring, store)
    count = store.counts

    def counts() -> dict[int, int]:
        monkeypatch.undo()
        other = KeyringFile(path)
        other.add()
        seal_all(other, store, ["user_id:meanwhile"])
        return count()

    monkeypatch.setattr(store, "counts", counts)
    assert known_counts(keyring, store) == {1: len(NAMES), 2: 1}


def assert_readable(provider: KeyringFile, store: DataKeyStore, sealed: Mapping[str, str]) -> None:
    """By somebody who has nothing in a cache."""
    keys = DataKeys(provider, store).fetch(sealed, create=False)
    assert {name: keys[name].open(text, *PLACE) for name, text in sealed.items()} == {
        name: name for name in sealed
    }


def rotated(provider: KeyringFile, store: DataKeyStore, page: int = 7) -> Progress:
    return ended(Rotation(provider, store, page))


def statuses(provider: KeyringFile) -> list[tuple[int, str]]:
    return [(key.version, key.status) for key in provider.versions()]


def test_every_data_key_is_wrapped_anew_in_pages(keyring: KeyringFile, store: Watched) -> None:
    sealed = seal_all(keyring, store)
    before = store.get(NAMES)
    looked_at = []
    job = Rotation(keyring, store, page=7)
    for progress in steps(job):
        looked_at.append(progress.done)
        assert_readable(keyring, store, sealed)
        assert store.counts().get(2, 0) == progress.done == progress.counts["rewrapped"]
    assert looked_at == [0, 7, 14, 20]
    assert (job.version, progress.total, progress.resumed, progress.counts["unusable"]) == (2, 20, False, 0)
    assert store.counts() == {2: 20}
    assert not set(before.values()) & set(store.get(NAMES).values())
    assert statuses(keyring) == [(1, "retiring"), (2, "current")]


def test_a_cached_key_needs_no_new_read(keyring: KeyringFile, store: Watched) -> None:
    keys = DataKeys(keyring, store)
    first = keys.fetch(NAMES, create=True)
    rotated(keyring, store)
    retire(keyring, store, 1)
    reads = store.reads
    assert all(keys.fetch(NAMES, create=True)[name] is first[name] for name in NAMES)
    assert store.reads == reads


def test_a_rotation_of_nothing_makes_a_new_version(keyring: KeyringFile, store: Watched) -> None:
    job = Rotation(keyring, store)
    (only,) = steps(job)
    assert (job.version, only.total) == (2, 0)


def test_versions_that_were_only_added_to_are_rotated_too(keyring: KeyringFile, store: Watched) -> None:
    sealed = seal_all(keyring, store, NAMES[:5])
    keyring.add()
    sealed |= seal_all(keyring, store, NAMES[5:])
    assert store.counts() == {1: 5, 2: 15}
    assert rotated(keyring, store).counts["rewrapped"] == 20
    assert store.counts() == {3: 20}
    assert_readable(keyring, store, sealed)


def test_a_rotation_that_was_cut_short_is_taken_up_again(
    keyring: KeyringFile, store: Watched, path: Path
) -> None:
    sealed = seal_all(keyring, store)
    rotation = steps(Rotation(keyring, store, page=7))
    next(rotation)
    next(rotation)
    job = Rotation(KeyringFile(path), store)
    progress = ended(job)
    assert (job.version, progress.total, progress.counts["rewrapped"], progress.resumed) == (2, 13, 13, True)
    assert statuses(keyring) == [(1, "retiring"), (2, "current")]
    assert_readable(keyring, store, sealed)
    finished = Rotation(keyring, store)
    ended(finished)
    assert finished.version == 3, "a finished one is not taken up again"


def test_two_rotations_at_once_share_the_work(keyring: KeyringFile, store: Watched, path: Path) -> None:
    sealed = seal_all(keyring, store)
    first, second = steps(Rotation(keyring, store, 3)), steps(Rotation(KeyringFile(path), store, 4))
    last = [next(first), next(second)]
    for one, other in zip(first, second, strict=False):
        last = [one, other]
    rotated_in_all = sum(progress.counts["rewrapped"] for progress in last)
    list(first), list(second)
    assert rotated_in_all <= 20
    assert store.counts() == {2: 20}
    assert statuses(keyring) == [(1, "retiring"), (2, "current")]
    assert_readable(keyring, store, sealed)


def test_a_rotation_overtaken_by_a_later_one_goes_on_with_its_version(
    keyring: KeyringFile, store: Watched, path: Path
) -> None:
    sealed = seal_all(keyring, store)
    first = steps(Rotation(keyring, store, page=7))
    next(first)
    later = KeyringFile(path)
    later.begin_rotation(after=2)
    store.close_versions([1, 2])
    list(first)
    assert store.counts() == {3: 20}
    assert_readable(keyring, store, sealed)


def test_a_rotation_overtaken_again_and_again_goes_on(keyring: KeyringFile, path: Path) -> None:
    class Overtaken(Watched):
        """Three times another rotation closes the version by which a page was wrapped, before it is written."""

        overtakings = 3

        def replace(self, keys: Mapping[str, tuple[WrappedKey, WrappedKey]]) -> int:
            if self.overtakings:
                self.overtakings -= 1
                later = KeyringFile(path)
                current = later.versions()[-1].version
                later.begin_rotation(after=current)
                self.close_versions([current])
            return super().replace(keys)

    store = Overtaken()
    sealed = seal_all(keyring, store)
    progress = rotated(keyring, store)
    assert not progress.counts["unusable"]
    assert store.counts() == {5: 20}
    assert_readable(keyring, store, sealed)


def test_an_erased_key_stays_erased_and_a_new_one_stays_new(keyring: KeyringFile, path: Path) -> None:
    class Erasing(Watched):
        """Erases two fragments between the page's read and its write; one gets a new key."""

        def replace(self, keys: Mapping[str, tuple[WrappedKey, WrappedKey]]) -> int:
            if NAMES[0] in keys:
                self.delete(NAMES[:2])
                fresh.update(seal_all(KeyringFile(path), self, NAMES[1:2]))
            return super().replace(keys)

    fresh: dict[str, str] = {}
    store = Erasing()
    sealed = seal_all(keyring, store)
    progress = rotated(keyring, store)
    assert (progress.done, progress.counts["rewrapped"]) == (20, 18)
    assert NAMES[0] not in store.get(NAMES)
    assert fresh[NAMES[1]] != sealed[NAMES[1]]
    assert_readable(keyring, store, {name: sealed[name] for name in NAMES[2:]} | fresh)


def test_a_damaged_key_is_left_and_reported(keyring: KeyringFile, store: Watched) -> None:
    sealed = seal_all(keyring, store)
    bad = NAMES[3:11]
    wrapped = store.get(bad)
    store.replace({name: (key, key._replace(wrapped=key.wrapped[:-1])) for name, key in wrapped.items()})
    progress = rotated(keyring, store)
    assert (progress.done, progress.counts["rewrapped"], progress.counts["unusable"]) == (20, 12, 8)
    assert progress.notes["unusable"] == bad[:5]
    assert_readable(keyring, store, {name: text for name, text in sealed.items() if name not in bad})
    with pytest.raises(KeyInUseError, match="it wraps 8 data keys"):
        retire(keyring, store, 1)


def test_a_version_in_use_is_not_retired_and_says_what_uses_it(keyring: KeyringFile, store: Watched) -> None:
    sealed = seal_all(keyring, store)
    keyring.add()
    with pytest.raises(KeyInUseError) as caught:
        retire(keyring, store, 1)
    named = ", ".join(NAMES[:5])
    assert f"it wraps 20 data keys ({named}, …)" in str(caught.value)
    assert statuses(keyring) == [(1, "retiring"), (2, "current")]
    assert_readable(keyring, store, sealed)
    store.delete(NAMES[1:])
    with pytest.raises(KeyInUseError, match=rf"it wraps 1 data key \({NAMES[0]}\);"):
        retire(keyring, store, 1)


def test_the_current_and_an_unknown_version_are_not_retired(keyring: KeyringFile, store: Watched) -> None:
    with pytest.raises(KeyInUseError, match="current"):
        retire(keyring, store, 1)
    with pytest.raises(UnknownKeyVersionError, match="version 2"):
        retire(keyring, store, 2)
    seal_all(keyring, store)
    assert store.counts() == {1: 20}, "and nothing was closed"


def test_a_worker_that_wraps_while_its_version_is_retired_wraps_again(
    keyring: KeyringFile, store: Watched, path: Path
) -> None:
    admin = KeyringFile(path)

    def retire_it() -> None:
        rotated(admin, store)
        retire(admin, store, 1)

    store.before_put = retire_it
    sealed = seal_all(keyring, store)
    assert store.counts() == {2: 20}
    assert_readable(KeyringFile(path), store, sealed)


def test_a_key_that_was_read_before_its_version_was_retired_is_read_again(
    keyring: KeyringFile, store: Watched, path: Path
) -> None:
    sealed = seal_all(keyring, store)
    worker = KeyringFile(path)

    def retire_it() -> None:
        rotated(keyring, store)
        retire(keyring, store, 1)
        worker.refresh()

    store.after_get = retire_it
    assert_readable(worker, store, sealed)


def test_a_keyring_older_than_the_data_keys_is_reported(
    keyring: KeyringFile, tmp_path: Path, path: Path
) -> None:
    store = SqliteDataKeys(tmp_path / "data-keys.db")
    old = path.read_bytes()
    sealed = seal_all(keyring, store, NAMES[:1])
    rotated(keyring, store)
    path.write_bytes(old)
    keys = DataKeys(KeyringFile(path), store)
    with pytest.raises(
        StoreError, match=r"data-keys\.db: key version 1 .* the keyring is older than this file"
    ):
        keys.fetch(NAMES, create=True)
    with pytest.raises(KeyProviderError, match="has no key-encryption key of version 2"):
        keys.fetch(NAMES[:1], create=False)[NAMES[0]].open(sealed[NAMES[0]], *PLACE)
    # Found by use: it made a second, other version 2, after which nothing reported the older keyring any more.
    with pytest.raises(KeyProviderError, match="never had key version 2, by which 1 data key"):
        rotated(KeyringFile(path), store)
    assert KeyringFile(path).versions()[-1].version == 1
    store.close()


def test_what_a_backup_from_before_needs(keyring: KeyringFile, tmp_path: Path, path: Path) -> None:
    file, kept = tmp_path / "data-keys.db", tmp_path / "keyring.backup"
    store = SqliteDataKeys(file)
    sealed = seal_all(keyring, store)
    store.close()
    backup = file.read_bytes()
    shutil.copy(path, kept)
    store = SqliteDataKeys(file)
    rotated(keyring, store)
    store.close()
    file.write_bytes(backup)
    store = SqliteDataKeys(file)
    assert_readable(keyring, store, sealed)
    keyring._change(lambda content: content.with_status(1, content.keys[0].described.status.RETIRED))
    (key,) = DataKeys(keyring, store).fetch(NAMES[:1], create=False).values()
    with pytest.raises(
        KeyProviderError, match=r"version 1 was retired on .*only with a copy of .*keyring\.json"
    ):
        key.open(sealed[NAMES[0]], *PLACE)
    assert_readable(KeyringFile(kept), store, sealed)
    store.close()


@pytest.mark.process
def test_killed_at_every_step_nothing_is_lost_and_it_is_taken_up_again(
    keyring: KeyringFile, tmp_path: Path
) -> None:
    store = SqliteDataKeys(tmp_path / "data-keys.db")
    sealed = seal_all(keyring, store)
    store.close()
    outcomes = []
    with Forks(rotation_killed.__name__) as forks:
        for step in range(1, 100):
            folder = tmp_path / str(step)
            folder.mkdir()
            for name in ("keyring.json", "data-keys.db"):
                shutil.copy(tmp_path / name, folder / name)
            end = forks.run(rotation_killed.__name__, json.dumps([str(folder), step]))
            assert (end.code, end.output) in {(-signal.SIGKILL, ""), (0, "done\n")}, end.errors
            provider, store = KeyringFile(folder / "keyring.json"), SqliteDataKeys(folder / "data-keys.db")
            assert_readable(provider, store, sealed)
            outcomes.append((store.counts().get(1, 0), statuses(provider)[0][1]))
            if store.counts() != {2: 20}:
                job = Rotation(provider, store)
                assert ended(job).counts["rewrapped"] == outcomes[-1][0]
                assert job.version == 2
            retire(provider, store, 1)
            assert statuses(provider) == [(1, "retired"), (2, "current")]
            assert_readable(provider, store, sealed)
            store.close()
            if not end.code:
                break
    assert {(20, "current"), (20, "retiring"), (13, "retiring"), (6, "retiring"), (0, "retiring")} <= {
        *outcomes
    }
    assert outcomes[-1] == (0, "retired")


def test_a_key_is_made_though_its_version_is_rotated_out_again_and_again(
    keyring: KeyringFile, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the run beside workers, on a slow machine: the second version was rotated out as well."""
    store = SqliteDataKeys(tmp_path / "data-keys.db")
    seal_all(keyring, store)
    rotations = [Rotation(KeyringFile(path), store) for _ in range(3)]
    put_absent = SqliteDataKeys.put_absent

    def beside(own: SqliteDataKeys, keys: Mapping[str, WrappedKey]) -> Mapping[str, WrappedKey]:
        if rotations:
            ended(rotations.pop())
        return put_absent(own, keys)

    monkeypatch.setattr(SqliteDataKeys, "put_absent", beside)
    (key,) = DataKeys(KeyringFile(path), store).fetch(["user_id:new"], create=True).values()
    assert key.open(key.seal("x", *PLACE), *PLACE) == "x"
    assert store.get(["user_id:new"])["user_id:new"].kek_version == 4
    store.close()


_WORKER = """
import json, sys
from pathlib import Path
from idgraph.model.stamps import Stamp
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from transforms.privacy.sealing import DataKeys

folder, number = Path(sys.argv[1]), int(sys.argv[2])
provider, store = KeyringFile(folder / "keyring.json"), SqliteDataKeys(folder / "data-keys.db")
sealed = {}
print("ready", flush=True)
for turn in range(150):
    # Workers meet in some fragments and have others of their own; no cache, so that each turn reads.
    names = [f"user_id:{turn % 40:02}", f"new:{turn}", f"own:{number}:{turn}"]
    for name, key in DataKeys(provider, store).fetch(names, create=True).items():
        text = key.seal(name, "identity.email", Stamp(0, 1, "shop", "event-1"))
        assert sealed.setdefault(name, text) == text, name
    if turn % 10 == 0:
        store.delete([f"own:{number}:{turn}"])
        del sealed[f"own:{number}:{turn}"]
print(json.dumps(sealed))
"""

_ROTATION = """
import sys
from pathlib import Path
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from idgraph.jobs.rotate import Rotation
from tests.support.steps import ended

folder = Path(sys.argv[1])
provider, store = KeyringFile(folder / "keyring.json"), SqliteDataKeys(folder / "data-keys.db")
print("ready", flush=True)
for _ in range(4):
    last = ended(Rotation(provider, store, 5))
    assert not last.counts["unusable"], last
"""


@pytest.mark.process
def test_beside_workers_and_another_rotation(keyring: KeyringFile, tmp_path: Path, path: Path) -> None:
    store = SqliteDataKeys(tmp_path / "data-keys.db")
    sealed = seal_all(keyring, store)
    workers = [start(_WORKER, tmp_path, str(number)) for number in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    rotations = [start(_ROTATION, tmp_path) for _ in range(2)]
    for worker in workers:
        for name, text in json.loads(finish(worker)).items():
            assert sealed.setdefault(name, text) == text
    for rotation in rotations:
        finish(rotation)
    provider = KeyringFile(path)
    rotated(provider, store)
    *older, current = provider.versions()
    assert len(older) >= 4
    for key in older:
        retire(provider, store, key.version)
    assert set(store.counts()) == {current.version}
    assert len(sealed) > 400
    assert_readable(KeyringFile(path), store, sealed)
    assert not store.get([f"own:{number}:{turn}" for number in range(2) for turn in range(0, 150, 10)])
    store.close()
