"""Noticing that the data keys are gone while what they protect is still there."""

from __future__ import annotations

from pathlib import Path

from merge import codec
from merge.store import ProfileStore, StoredFragment, scan_all
from model.errors import DamagedStateError, StoreError
from model.fragments import Kind
from transforms.keys import DataKeyStore


def require_data_keys(profiles: Path, keys: Path, store: ProfileStore, key_store: DataKeyStore) -> None:
    """Raises StoreError when the file `keys` is missing though `profiles` holds values sealed under its keys.

    A new file in its place would seal the same events under other keys, and hide that the old ones are lost.
    """
    if keys.exists() or not profiles.exists():
        return
    # Looked for again after the values: a flow that starts right now makes the keys first.
    if _holds_sealed_values(store) and not keys.exists():
        raise StoreError(
            f"{keys} is missing, and {profiles} holds protected values that nothing but its keys can open. "
            "Restore it from a backup. If there is none, these values are gone for good: to go on without "
            "them, make an empty file of this name"
        )
    # Makes the file, so that the values are looked through once only.
    key_store.get([""])


def _holds_sealed_values(store: ProfileStore) -> bool:
    return any(_is_sealed(fragment) for fragment in scan_all(store))


def _is_sealed(fragment: StoredFragment) -> bool:
    try:
        state = codec.decode(fragment.state)
    except DamagedStateError:
        # Another loss, which is told where the fragment is read.
        return False
    return any(register.kind is Kind.SEALED for _, register in state.stored())
