"""Keys of payloads that are values or personal data themselves, replaced where values are not to be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from idgraph.model.errors import TransformError
from transforms.schema.detection.detection import shaped_key

_WORDS = re.compile(r"[\w-]+")


class KeyMasks:
    """Replaces keys in which a detector finds an address or a number of somebody by `<email 1>` and the like, and
    keys that an operation made out of a value by `<value 1>`. The same key is always replaced by the same, so that
    steps of one trace can be compared.

    A key is taken to be made out of a value if neither the payload has it as a key nor the spec as a word, and a value
    is in it, in whatever case. What was made out of a value by other means, a hash say, is not known.
    """

    def __init__(self, spec: Any = None) -> None:
        self._names: dict[str, str] = {}
        self._written = {word for text in _texts(spec) for word in (text, *_WORDS.findall(text))}
        self._keys: set[str] = set()
        self._values: set[str] = set()

    def begin(self, payload: Any) -> None:
        """From here on the keys of this payload are known, and its values are looked for in others. Raises
        TransformError for one that is nested too deeply."""
        try:
            self._keys, self._values = set(_keys(payload)), set()
            self._learn(payload)
        except RecursionError:
            raise TransformError("the payload is nested too deeply to be shown") from None

    def masked(self, value: Any) -> Any:
        """What an operation gave with such keys replaced; its values count from then on. Raises TransformError for
        one that is nested too deeply."""
        try:
            shown = self._masked(value)
            self._learn(value)
        except RecursionError:
            raise TransformError("the payload is nested too deeply to be shown") from None
        return shown

    def _learn(self, value: Any) -> None:
        self._values.update(text.casefold() for text in _scalars(value) if text)

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
        return self._mask(key, "value") if self._is_made_of_a_value(key) else key

    def _mask(self, key: str, kind: str) -> str:
        return self._names.setdefault(key, f"<{kind} {len(self._names) + 1}>")

    def _is_made_of_a_value(self, key: str) -> bool:
        if key in self._keys or key in self._written:
            return False
        folded = key.casefold()
        return any(value in folded for value in self._values)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for below in _below(value):
        yield from _keys(below)


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, (dict, list)):
        for below in _below(value):
            yield from _scalars(below)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _texts(value: Any) -> Iterator[str]:
    yield from _keys(value)
    yield from _scalars(value)


def _below(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
