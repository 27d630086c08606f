"""Rotation: every data key rewrapped by a new key-encryption key, beside the workers that use them.

The order makes it safe, and each step can be done again after a crash:

1. the provider makes a new version current and marks the older ones retiring, in one step;
2. the store closes the older versions: a worker that still wraps by one is refused, learns which version
   is current, and wraps again, so the remaining work can only become less;
3. page by page, data keys are rewrapped and replaced where they are still what was read: one that was
   erased stays erased, one that another rotation was faster with stays as it is.

The data keys themselves do not change, hence no sealed value, no cache and no reader notices.
"""

from __future__ import annotations

from collections.abc import Iterator

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext, Rate, page_of
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ClosedVersionError, KeyInUseError, KeyProviderError
from idgraph.model.jobs import SHOWN, JobKind, JobType, Point, Progress
from transforms.privacy.keys import DataKeyStore, KeyStatus, RotatingKeyProvider, WrappedKey
from transforms.privacy.sealing import context

PAGE = 1000


class RotateParameters(StrictDocument):
    """Wrap every data key with a new key-encryption key."""

    rate: Rate = None


class Rotation(PagedJob):
    """Begins a rotation, or takes up one that was interrupted. The keyring and the data keys show the
    remaining work, so it needs no point. Counts `rewrapped` keys, and those that cannot be unwrapped and stay
    (`unusable`).

    Raises KeyProviderError and StoreError; run it again then. Begins nothing under a keyring that is not
    these data keys' (`known_counts`).
    """

    kind = JobKind.ROTATE

    def __init__(self, provider: RotatingKeyProvider, store: DataKeyStore, page: int = PAGE) -> None:
        self._provider = provider
        self._store = store
        self._page = page
        self._counts: dict[int, int] = {}
        self.version = 0
        """The version that data keys are wrapped by, once it is planned."""

    def plan(self, _point: Point) -> Plan:
        counts = known_counts(self._provider, self._store)
        known = self._provider.versions()
        self.version = known[-1].version
        resumes = any(key.status is KeyStatus.RETIRING and counts.get(key.version) for key in known)
        if not resumes:
            self.version = self._provider.begin_rotation(after=self.version)
        older = [key.version for key in self._provider.versions() if key.version < self.version]
        self._store.close_versions(older)
        # Counted again: until the versions were closed, workers could add to them.
        counts = self._store.counts()
        self._counts = {version: number for version, number in counts.items() if version != self.version}
        title = f"the rotation to version {self.version}"
        return Plan(title, sum(self._counts.values()), "data key", resumes)

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        for version in sorted(self._counts):
            after = ""
            while found := self._store.wrapped_by(version, after, self._page):
                unusable: list[str] = []
                progress.counts["rewrapped"] += _replace(self._provider, self._store, found, unusable)
                progress.counts["unusable"] += len(unusable)
                progress.note("unusable", unusable)
                progress.done += len(found)
                after = next(reversed(found))
                yield {}


def known_counts(provider: RotatingKeyProvider, store: DataKeyStore) -> dict[int, int]:
    """The number of data keys that each version wraps. Raises KeyProviderError for a version that the
    provider never had. The keyring is then an older copy, which would make a second, other key of the same
    number."""
    # Counted first: another rotation may make a version in between, and none ever goes.
    counts = store.counts()
    had = {key.version for key in provider.versions()}
    missing = {version: number for version, number in sorted(counts.items()) if version not in had}
    if missing:
        named = [name for version in missing for name in users(store, version)][:SHOWN]
        used = sum(missing.values())
        raise KeyProviderError(
            f"the keyring never had key version {', '.join(map(str, missing))}, by which {used:,} data "
            f"key{'s are' if used != 1 else ' is'} wrapped ({', '.join(named)}{', …' * (used > SHOWN)}): it is older than they "
            "are, or another one. Restore the newer one; if there is none, erase these persons, whose protected "
            "values nobody can open"
        )
    return counts


def retire(provider: RotatingKeyProvider, store: DataKeyStore, version: int) -> None:
    """Destroy a key version that wraps nothing any more. Doing it twice is no error.

    First nobody may wrap by it, then its data keys are counted, then it goes: none can come in between.
    Raises KeyInUseError when it is the current one or data keys are wrapped by it, UnknownKeyVersionError,
    KeyProviderError, StoreError.
    """
    provider.mark_retiring(version)
    store.close_versions([version])
    used = store.counts().get(version, 0)
    if used and _is_held(provider, version):
        raise KeyInUseError(
            f"key version {version} is in use: it wraps {used:,} data key{'s' * (used != 1)} "
            f"({', '.join(users(store, version))}{', …' * (used > SHOWN)}); `idgraph keys rotate` wraps them again"
        )
    provider.retire(version)


def users(store: DataKeyStore, version: int) -> list[str]:
    """The first few fragments whose data keys a version wraps, as the store names them."""
    return list(store.wrapped_by(version, "", SHOWN))


def _is_held(provider: RotatingKeyProvider, version: int) -> bool:
    return any(key.version == version and key.status is not KeyStatus.RETIRED for key in provider.versions())


def _replace(
    provider: RotatingKeyProvider, store: DataKeyStore, found: dict[str, WrappedKey], unusable: list[str]
) -> int:
    while True:
        rewrapped = dict(_rewrapped(provider, found, unusable))
        try:
            return store.replace(rewrapped)
        except ClosedVersionError:
            # A later rotation made a newer version current, which counts; a still later one may close that too by now.
            tried = {new.kek_version for _, new in rewrapped.values()}
            if provider.versions()[-1].version in tried:
                raise
        unusable.clear()


def _rewrapped(
    provider: RotatingKeyProvider, found: dict[str, WrappedKey], unusable: list[str]
) -> Iterator[tuple[str, tuple[WrappedKey, WrappedKey]]]:
    for name, key in found.items():
        try:
            yield name, (key, provider.rewrap(key, context(name)))
        except KeyProviderError:
            unusable.append(name)


def _prepare(parameters: RotateParameters, context: JobContext) -> Rotation:
    return Rotation(*context.keys(), page_of(PAGE, parameters.rate))


ROTATE = JobType(
    "wraps data keys with a new key-encryption key", "idgraph keys rotate", RotateParameters, _prepare
)
