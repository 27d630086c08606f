"""Checks that the data keys are not lost while sealed values are stored, and that the keyring is the right
one."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from idgraph.model.errors import (
    DamagedStateError,
    KeyProviderError,
    KeyServiceError,
    StoreError,
    UnknownKeyVersionError,
)
from idgraph.model.fragments import Kind
from idgraph.model.store import FragmentStore, ProfileStore, StoredFragment, StoreMarks, scan_all
from merge.fragments import FragmentState
from transforms.privacy.keys import DataKeyStore, KeyProvider
from transforms.privacy.sealing import context

LOOKED_AT = 500
"""Data keys that are tried, until one opens."""

_NOTED = "keyring"
"""The mark of a store that one or more keyrings are noted with."""


def require_data_keys(profiles: Path, keys: Path, store: FragmentStore, key_store: DataKeyStore) -> None:
    """Raises StoreError when the file `keys` is missing though `profiles` holds values sealed under its keys.

    A new file in its place would seal the same events under other keys, and hide that the old ones are lost.
    """
    if keys.exists() or not profiles.exists():
        return
    # Looked for again after the values: a flow that starts right now makes the keys first.
    if any(map(_is_sealed, scan_all(store))) and not keys.exists():
        raise StoreError(
            f"{keys} is missing, and {profiles} holds protected values that nothing but its keys can open. "
            "Restore it from a backup. If there is none, these values are gone for good: to go on without "
            "them, make an empty file of this name"
        )
    # Makes the file, so that the values are looked through once only.
    key_store.get([""])


def require_own_keyring(provider: KeyProvider, store: ProfileStore, key_store: DataKeyStore) -> None:
    """Raises KeyProviderError when the keyring opens none of some data keys, or, without data keys, is not
    the one noted with the profiles. It is then another installation's, or an older copy. Under it identifiers
    have other hashes, so that a person becomes a second one and tombstones keep nobody away."""
    refusals = _refusals(provider, key_store)
    if refusals is None:
        return
    is_noted = store.remembers(keyring_mark(provider))
    # One that is older than the data keys never had their version; it is noted all the same.
    are_newer = all(isinstance(each, UnknownKeyVersionError) for each in refusals)
    if refusals and (are_newer or not is_noted):
        raise _not_theirs(refusals)
    if not is_noted and store.remembers(_NOTED) and (store.scan(limit=1) or store.all_tombstones()):
        raise KeyProviderError(
            "the keyring is not the one that these profiles were made under, so that erased persons would come back: "
            "restore that one. If it is lost, `idgraph keys adopt` continues with this one"
        )


def adopt_keyring(provider: KeyProvider, store: ProfileStore, key_store: DataKeyStore) -> None:
    """Note another keyring as that of the profiles. Raises KeyProviderError when it opens none of their data keys."""
    if refusals := _refusals(provider, key_store):
        raise _not_theirs(refusals)
    note_keyring(provider, store)


def note_keyring(provider: KeyProvider, store: StoreMarks) -> None:
    """Note the keyring with its profiles. Durable when it returns; the note reveals nothing of the
    keyring."""
    mark = keyring_mark(provider)
    if not store.remembers(mark):
        store.remember(mark)
    # Behind it: a note without its keyring would refuse all.
    if not store.remembers(_NOTED):
        store.remember(_NOTED)


def _refusals(provider: KeyProvider, key_store: DataKeyStore) -> list[KeyProviderError] | None:
    """An error for each data key that was tried and that the keyring does not open; None if it opens one.
    Raises KeyServiceError."""
    refusals = []
    for name, key in key_store.some(LOOKED_AT).items():
        try:
            provider.unwrap(key, context(name))
        except KeyServiceError:
            raise
        except KeyProviderError as error:
            refusals.append(error)
        else:
            return None
    return refusals


def _not_theirs(refusals: list[KeyProviderError]) -> KeyProviderError:
    return KeyProviderError(
        f"the keyring opens none of {len(refusals)} data keys that were tried, so it is not the one that they were made "
        f"under, or an older copy: restore that one ({refusals[-1]}). If it is lost, so are all protected values, and "
        'docs/operate.md ("A lost keyring") says how to go on without them'
    )


def keyring_mark(provider: KeyProvider) -> str:
    """A mark of the keyring, which reveals nothing of it."""
    return f"{_NOTED}:{sha256(provider.purpose_key('keyring-mark')).hexdigest()[:32]}"


def _is_sealed(fragment: StoredFragment) -> bool:
    try:
        state = FragmentState.decode(fragment.state)
    except DamagedStateError:
        # Another loss, which is reported where the fragment is read.
        return False
    return any(register.kind is Kind.SEALED for _, register in state.stored())
