"""The names that tombstones of erased fragments stand under."""

from __future__ import annotations

import hmac

from transforms.privacy.keys import KeyProvider
from transforms.privacy.not_picklable import NotPicklable

PURPOSE = "tombstones"
NAME_BYTES = 16


class TombstoneNames(NotPicklable):
    """HMAC-SHA-256 of a fragment's id under the purpose key `tombstones`, cut to 128 bits.

    Without the key nobody can test whether a person was erased; with it one can test a guess, which is
    what a tombstone is for. Safe for several threads.
    """

    __slots__ = ("_start",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._start = hmac.new(provider.purpose_key(PURPOSE), digestmod="sha256")

    def __call__(self, fragment_id: str) -> bytes:
        # Copied: to begin again with the key costs twice as much.
        keyed = self._start.copy()
        keyed.update(fragment_id.encode("utf-8", "surrogatepass"))
        return keyed.digest()[:NAME_BYTES]
