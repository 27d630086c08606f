"""Keys of payloads that are values or personal data themselves, replaced where values are not to be shown."""

from __future__ import annotations

from typing import Any

from idgraph.model.errors import TransformError
from transforms.schema.detection import shaped_key
from transforms.schema.value_keys import ValueKeys


class KeyMasks:
    """Replaces keys in which a detector finds an address or a number of somebody by `<email 1>` and the like, and
    keys that an operation made out of a value by `<value 1>`. The same key is always replaced by the same, so that
    steps of one trace can be compared."""

    def __init__(self, spec: Any = None) -> None:
        self._names: dict[str, str] = {}
        self._value_keys = ValueKeys(spec)
        self._is_value = self._value_keys.made_of()

    def begin(self, payload: Any) -> None:
        """From here on the keys of this payload are known, and its values are looked for in others."""
        self._is_value = self._value_keys.made_of(payload)

    def masked(self, value: Any) -> Any:
        """What an operation gave with such keys replaced; its values count from then on. Raises TransformError for
        one that is nested too deeply."""
        try:
            shown = self._masked(value)
            self._is_value.add_values(value)
        except RecursionError:
            raise TransformError("the payload is nested too deeply to be shown") from None
        return shown

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._name(key): self._masked(below) for key, below in value.items()}
        if isinstance(value, list):
            return [self._masked(below) for below in value]
        return value

    def _name(self, key: str) -> str:
        reported = shaped_key(key)
        if reported is not None:
            return self._mask(key, reported.kind)
        return self._mask(key, "value") if self._is_value(key) else key

    def _mask(self, key: str, kind: str) -> str:
        return self._names.setdefault(key, f"<{kind} {len(self._names) + 1}>")
