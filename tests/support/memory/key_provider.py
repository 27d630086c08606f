"""A key provider without a keyring."""

from __future__ import annotations

from transforms.privacy.keys import Secret, WrappedKey


class FixedProvider:
    """A key provider with one purpose key."""

    def wrap(self, data_key: Secret, context: bytes) -> WrappedKey:
        raise NotImplementedError

    def unwrap(self, key: WrappedKey, context: bytes) -> Secret:
        raise NotImplementedError

    def refresh(self) -> None:
        pass

    def prepare(self) -> None:
        pass

    def purpose_key(self, purpose: str) -> bytes:
        return purpose.encode().ljust(64, b"\0")
