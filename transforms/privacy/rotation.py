"""Rotation: every data key rewrapped by a new key-encryption key, beside the workers that use them.

The order makes it safe, and each step can be done again after a crash:

1. the provider makes a new version current and marks the older ones retiring, in one step;
2. the store closes the older versions: a worker that still wraps by one is refused, learns which version
   is current, and wraps again, so what is left to do can only become less;
3. page by page, data keys are rewrapped and replaced where they are still what was read: one that was
   erased stays erased, one that another rotation was faster with stays as it is.

The data keys themselves do not change, hence no sealed value, no cache and no reader notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from idgraph.model.errors import ClosedVersionError, KeyInUseError, KeyProviderError
from transforms.privacy.keys import DataKeyStore, KeyStatus, RotatingKeyProvider, WrappedKey
from transforms.privacy.sealing import context

PAGE = 1000
SHOWN = 5
"""How many fragments are named where more may be meant."""


@dataclass(slots=True)
class RotationProgress:
    """How far a rotation is. `total` is what was to be done when it began or was taken up again.

    `unusable` keys could not be unwrapped and stay as they are; the first of their fragments are in `named`.
    """

    version: int
    total: int
    resumed: bool
    looked_at: int = 0
    rewrapped: int = 0
    unusable: int = 0
    named: list[str] = field(default_factory=list)


def rotate(
    provider: RotatingKeyProvider, store: DataKeyStore, page: int = PAGE
) -> Iterator[RotationProgress]:
    """Begin a rotation, or take up one that was interrupted; gives the progress at the start and after each
    page of at most `page` data keys, each page durable. The same object is retried and again.

    Blocks. Raises KeyProviderError and StoreError; run it again then. A data key that cannot be unwrapped
    is counted and left. Begins nothing under a keyring that is not these data keys' (`known_counts`).
    """
    counts = known_counts(provider, store)
    known = provider.versions()
    current = known[-1].version
    resumed = any(key.status is KeyStatus.RETIRING and counts.get(key.version) for key in known)
    if not resumed:
        current = provider.begin_rotation(after=current)
    store.close_versions(key.version for key in provider.versions() if key.version < current)
    # Counted again: until the versions were closed, workers could add to them.
    counts = {version: number for version, number in store.counts().items() if version != current}
    progress = RotationProgress(current, sum(counts.values()), resumed)
    yield progress
    for version in sorted(counts):
        yield from _rewrap(provider, store, version, page, progress)


def known_counts(provider: RotatingKeyProvider, store: DataKeyStore) -> dict[int, int]:
    """How many data keys each version wraps. Raises KeyProviderError where one wraps some that the provider never had: it
    is an older copy, which would make a second, other key of the same number."""
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


def _rewrap(
    provider: RotatingKeyProvider, store: DataKeyStore, version: int, page: int, progress: RotationProgress
) -> Iterator[RotationProgress]:
    after = ""
    while found := store.wrapped_by(version, after, page):
        unusable: list[str] = []
        progress.rewrapped += _replace(provider, store, found, unusable)
        progress.unusable += len(unusable)
        progress.named += unusable[: SHOWN - len(progress.named)]
        progress.looked_at += len(found)
        after = next(reversed(found))
        yield progress


def _replace(
    provider: RotatingKeyProvider, store: DataKeyStore, found: dict[str, WrappedKey], unusable: list[str]
) -> int:
    anew = dict(_rewrapped(provider, found, unusable))
    try:
        return store.replace(anew)
    except ClosedVersionError:
        # A later rotation made a newer version current: that one it is.
        tried = {new.kek_version for _, new in anew.values()}
        if provider.versions()[-1].version in tried:
            raise
    unusable.clear()
    return store.replace(dict(_rewrapped(provider, found, unusable)))


def _rewrapped(
    provider: RotatingKeyProvider, found: dict[str, WrappedKey], unusable: list[str]
) -> Iterator[tuple[str, tuple[WrappedKey, WrappedKey]]]:
    for name, key in found.items():
        try:
            yield name, (key, provider.rewrap(key, context(name)))
        except KeyProviderError:
            unusable.append(name)
