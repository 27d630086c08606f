"""The folder of the embedded index: its versions, who writes to them, and what keeps them whole.

`versions.json` names the versions: the one in use, and one that is being made beside it. It is replaced in one step,
so every process sees the one or the other. Each version is a folder of tantivy's. The writer holds the lock;
tantivy's own files survive a crash at any moment.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Literal, NamedTuple, TypeVar

from tantivy import Index, IndexWriter

from idgraph.files import OWNER_ONLY, WriterLock, write_atomically
from idgraph.model.backoff import Retries, steady
from idgraph.model.errors import IdgraphError, ProfileIndexError
from idgraph.model.formats import require_format
from idgraph.model.index_versions import VersionState
from sinks.index_values import analyzer
from sinks.tantivy.documents import ANALYZER, SCHEMA

_FILE = "versions.json"
_PREFIX = "index-"
_HEAP_BYTES = 64 << 20
LOCK_SECONDS = 5.0
LAYOUT = 3
"""The version of documents: a folder of another one must be made again."""

T = TypeVar("T")


class Version(NamedTuple):
    """One version. `mark` distinguishes it from every other, also from one that had its name before; `folder` changes
    when it is compacted."""

    name: str
    state: VersionState
    mark: str
    folder: str

    @property
    def number(self) -> int:
        return int(self.name.removeprefix(_PREFIX))


def layout_of(folder: Path) -> int:
    """The format of the index in a folder. Raises ProfileIndexError for one that cannot be read."""
    try:
        return int(json.loads((folder / _FILE).read_bytes())["layout"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ProfileIndexError(f"index {folder}: {_FILE} cannot be read ({type(error).__name__})") from None


def holds_documents(folder: Path) -> bool:
    """Whether some version of an index lies here with documents, by tantivy's own list of segments; nothing is opened."""
    for file in folder.glob("*/meta.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if any(each["max_doc"] for each in json.loads(file.read_bytes())["segments"]):
                return True
    return False


class Uncommitted(NamedTuple):
    """The writes of a block to one version: tantivy's writer, and the stamps of the documents by name."""

    writer: IndexWriter
    stamps: dict[bytes, int]


class IndexFolder:
    """The versions in one folder, made when first used, for the owner only. Safe for several processes and threads.

    Every method raises ProfileIndexError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = WriterLock(path / "lock")
        self._opened: dict[str, Index] = {}
        self._depth = 0
        self._stays_open = False
        self._writers: dict[str, Uncommitted] = {}
        self._guard = threading.Lock()
        self._is_closed = False

    @contextmanager
    def writing(self, stays_open: bool = False) -> Iterator[Callable[[], bool]]:
        """Until the block ends nobody else writes. The thread that is in it may enter it again. The outermost block commits
        what was written when it ends, and nothing if it fails. Within one that `stays_open` each block is an outermost one:
        tantivy merges beside its commits, and not behind each."""
        self._require_open()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self._lock()
            lock.__enter__()
        except OSError as error:
            raise ProfileIndexError(f"index {self.path}: {error.strerror}") from None
        self._depth += 1
        if self._depth == 1:
            self._stays_open = stays_open
        try:
            yield self._lock.is_wanted
            if self._depth == self._outermost:
                self.commit()
        except BaseException:
            if self._depth <= self._outermost:
                self._close("rollback")
            raise
        finally:
            self._depth -= 1
            try:
                if self._depth == 0:
                    self._close("wait_merging_threads")
            finally:
                lock.__exit__(None, None, None)

    @property
    def _outermost(self) -> int:
        return 2 if self._stays_open else 1

    @property
    def is_within(self) -> bool:
        """Whether the present block is within one that commits it. Only while `writing`."""
        return self._depth > self._outermost

    def versions(self) -> list[Version]:
        """All versions, in the order in which they were made."""
        self._require_open()
        found = self._read()
        if found is None:
            with self.writing():
                found = self._read()
                if found is None:
                    found = [self.new(1, VersionState.IN_USE)]
                    self.keep(found)
        return found

    def in_use(self) -> Version:
        """The version that searches see."""
        return next(each for each in self.versions() if each.state is VersionState.IN_USE)

    def new(self, number: int, state: VersionState) -> Version:
        """A version of this number, without documents; not kept yet."""
        folder = f"{_PREFIX}{number:06d}-{token_hex(4)}"
        with self._problems():
            (self.path / folder).mkdir(mode=0o700)
            Index(SCHEMA, path=str(self.path / folder), reuse=False)
            for file in (self.path / folder).iterdir():
                file.chmod(OWNER_ONLY)
        return Version(f"{_PREFIX}{number:06d}", state, token_hex(8), folder)

    def keep(self, versions: Sequence[Version]) -> None:
        """These are the versions from now on; folders of others are removed. Only while `writing`."""
        content = {"layout": LAYOUT, "versions": [each._asdict() for each in versions]}
        try:
            write_atomically(self.path / _FILE, json.dumps(content).encode())
        except OSError as error:
            raise ProfileIndexError(f"index {self.path}: {error.strerror}") from None
        self.sweep(versions)

    def sweep(self, versions: Sequence[Version]) -> None:
        """Remove the folders that no version has: what a crash left. Only while `writing`."""
        known = {each.folder for each in versions}
        for each in self.path.glob(f"{_PREFIX}*"):
            if each.name not in known:
                shutil.rmtree(each, ignore_errors=True)

    def open(self, version: Version) -> Index:
        """The tantivy index of a version, as it is now."""
        with self._problems():
            with self._guard:
                index = self._opened.get(version.folder)
                if index is None:
                    index = _prepared(Index.open(str(self.path / version.folder)))
                    self._opened = {
                        name: each for name, each in self._opened.items() if (self.path / name).exists()
                    }
                    self._opened[version.folder] = index
            index.reload()
        return index

    def read(self, work: Callable[[Index], T]) -> T:
        """The result of `work` for the version in use; again if another one took its place meanwhile."""
        while True:
            version = self.in_use()
            try:
                with self._problems():
                    return work(self.open(version))
            except ProfileIndexError:
                if self.in_use().folder == version.folder:
                    raise

    @contextmanager
    def writer(self, version: Version) -> Iterator[Uncommitted]:
        """The writes to a version by the block that is `writing`. An error takes back all of it."""
        try:
            with self._problems():
                if version.folder not in self._writers:
                    self._writers[version.folder] = Uncommitted(_writer(self.open(version)), {})
                yield self._writers[version.folder]
        except BaseException:
            self._close("rollback")
            raise

    def uncommitted(self, version: Version) -> Mapping[bytes, int]:
        """The stamps that the block has written to a version, by name. Only while `writing`."""
        return self._writers[version.folder].stamps if version.folder in self._writers else {}

    def commit(self) -> None:
        """Commit all that was written, durably. Only while `writing`."""
        if not self._stays_open:
            self._close("commit")
        for folder, (writer, stamps) in self._writers.items():
            with self._problems():
                if stamps:
                    writer.commit()
                    stamps.clear()
            self._for_owner_only(folder)

    def _close(self, first: Literal["commit", "rollback", "wait_merging_threads"]) -> None:
        """Close tantivy's writers. Merges in progress come to their end: killed ones would be begun again by each writer."""
        while self._writers:
            folder, (writer, _) = self._writers.popitem()
            with self._problems():
                try:
                    getattr(writer, first)()
                finally:
                    if first != "wait_merging_threads":
                        writer.wait_merging_threads()
                    self._for_owner_only(folder)

    def _for_owner_only(self, folder: str) -> None:
        for file in (self.path / folder).iterdir():
            # A merge removes files meanwhile.
            with suppress(FileNotFoundError):
                file.chmod(OWNER_ONLY)

    def compact(self, version: Version, copies: Callable[[Index], Iterator[str]]) -> Version:
        """Leave nothing of documents that were replaced or erased: the version in another folder, if there are any.
        `copies` gives its documents as JSON. Only while `writing`."""
        folder = self.path / version.folder
        index = self.open(version)
        with self._problems():
            with self.writer(version) as (writer, _):
                writer.garbage_collect_files()
            self.commit()
            meta = json.loads((folder / "meta.json").read_bytes())
            if not any(each["deletes"] for each in meta["segments"]):
                return version
            index.reload()
            other = self.new(version.number, version.state)
            other = other._replace(name=version.name, mark=version.mark)
            with self.writer(other) as (writer, _):
                for each in copies(index):
                    writer.add_json(each)
            self.commit()
            return other

    def close(self) -> None:
        """Close; later uses raise ProfileIndexError."""
        self._is_closed = True
        self._opened = {}

    def _read(self) -> list[Version] | None:
        try:
            content = json.loads((self.path / _FILE).read_bytes())
            require_format(
                f"index {self.path}",
                content["layout"],
                LAYOUT,
                ProfileIndexError,
                "remove the folder, then run `idgraph reindex`",
                oldest=LAYOUT,
            )
            return [
                Version(each["name"], VersionState(each["state"]), each["mark"], each["folder"])
                for each in content["versions"]
            ]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ProfileIndexError(f"index {self.path}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError):
            raise ProfileIndexError(
                f"index {self.path}: {_FILE} is damaged; remove the folder, then run `idgraph reindex`"
            ) from None

    def _require_open(self) -> None:
        if self._is_closed:
            raise ProfileIndexError(f"index {self.path}: the index is closed")

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """Raise errors of tantivy as ProfileIndexError. Its messages may quote a value, so only the type is named."""
        self._require_open()
        try:
            yield
        except (IdgraphError, TypeError, UnicodeError):
            raise
        except Exception as error:
            raise self._damaged(error) from None
        except BaseException as error:
            # A panic of tantivy's is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise self._damaged(error) from None

    def _damaged(self, error: BaseException) -> ProfileIndexError:
        return ProfileIndexError(
            f"index {self.path}: cannot be read or written ({type(error).__name__}); look for space and permissions; "
            "if the index is damaged, `idgraph reindex` makes it again"
        )


def _writer(index: Index) -> IndexWriter:
    """Raises ValueError. A process that was killed may hold tantivy's own lock for a moment longer than ours, and leaves
    files of a commit that never was, whose names the next commit would take."""
    retries = Retries(steady(0.01), LOCK_SECONDS)
    while True:
        try:
            writer = index.writer(_HEAP_BYTES, 1)
            writer.garbage_collect_files()
            return writer
        except ValueError as error:
            if "LockBusy" not in str(error) or not retries.pause():
                raise


def _prepared(index: Index) -> Index:
    index.config_reader("manual")
    index.register_tokenizer(ANALYZER, analyzer())
    return index
