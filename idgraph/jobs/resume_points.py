"""How far a long walk over what is stored has come, on disk: what is interrupted goes on there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from idgraph.files import write_atomically
from idgraph.model.errors import SealError, StoreError
from ingestion.stages.dead_letters import PayloadSealer


class ResumePoint:
    """One walk's place, in a file. A fragment's id may be what is to be hidden, so the place is sealed as a dead
    dead letter's record is."""

    def __init__(self, file: Path, sealer: PayloadSealer, walk: str) -> None:
        """`walk` names the kind of walk, and stands where dead letters have their id: none is called so."""
        self._file = file
        self._sealer = sealer
        self._walk = walk

    def read(self, under: str) -> dict[str, Any]:
        """What was kept `under` the same circumstances; empty where there is nothing, or nothing to be read."""
        try:
            sealed = base64.b64decode(json.loads(self._file.read_bytes())["place"], validate=True)
            kept = json.loads(self._sealer.open(sealed, self._walk, under))
        except (OSError, ValueError, LookupError, TypeError, SealError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def keep(self, under: str, place: Mapping[str, Any], beside: Mapping[str, str] | None = None) -> None:
        """`beside` stands in the file in the clear. Durable when it returns. Raises StoreError."""
        sealed = self._sealer.seal(json.dumps(dict(place)).encode(), self._walk, under)
        content = {**(beside or {}), "place": base64.b64encode(sealed).decode()}
        self._do(lambda: write_atomically(self._file, json.dumps(content).encode()))

    def forget(self) -> None:
        """The next walk begins again. Raises StoreError."""
        self._do(lambda: self._file.unlink(missing_ok=True))

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            raise StoreError(f"{self._file}: {error.strerror}") from None
