"""Keys of payloads that are personal data themselves, replaced where values are not to be shown."""

from __future__ import annotations

from typing import Any

from model.errors import TransformError
from transforms.detection.detection import shaped_key


class KeyMasks:
    """Replaces keys in which a detector finds an address or a number of somebody by `<email 1>` and the like.
    The same key is always replaced by the same, so that steps of one trace can be compared."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def masked(self, value: Any) -> Any:
        """The same value with such keys replaced. Raises TransformError for one that is nested too deeply."""
        try:
            return self._masked(value)
        except RecursionError:
            raise TransformError("the payload is nested too deeply to be shown") from None

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._name(key): self._masked(below) for key, below in value.items()}
        if isinstance(value, list):
            return [self._masked(below) for below in value]
        return value

    def _name(self, key: str) -> str:
        told = shaped_key(key)
        if told is None:
            return key
        return self._names.setdefault(key, f"<{told.kind} {len(self._names) + 1}>")
