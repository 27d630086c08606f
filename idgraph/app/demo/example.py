"""An example as it lies in `examples/`: configuration, specs, attributes, data, and the calls to show."""

from __future__ import annotations

import gzip
import shutil
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from idgraph.app.settings.document import Settings
from idgraph.model import canonical
from idgraph.model.errors import ConfigError
from idgraph.model.timelines import DAY_MS

_CHECKOUT = Path(__file__).resolve().parents[3]
EXAMPLES = (_CHECKOUT if (_CHECKOUT / "setup.py").exists() else _CHECKOUT / "idgraph") / "examples"
"""The examples; in a wheel they are in the package."""
EVENTS_PER_FILE = 2000
MARKER = ".made-by-idgraph-demo"


class Example:
    """One example. `shown` is the content of its `demo.toml`."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError for a name that is not there."""
        self.name = name
        self.folder = EXAMPLES / name
        if not (self.folder / "demo.toml").is_file():
            known = ", ".join(sorted(file.parent.name for file in EXAMPLES.glob("*/demo.toml"))) or "none"
            raise ConfigError(f"there is no example {name!r} (found: {known})")
        self.shown: dict[str, Any] = tomllib.loads((self.folder / "demo.toml").read_text(encoding="utf-8"))

    def specs(self) -> list[Path]:
        """Spec documents."""
        return sorted((self.folder / "specs").glob("*.json"))

    def attributes(self) -> Path | None:
        """Attribute definitions, if the example declares some."""
        file = self.folder / "attributes.json"
        return file if file.exists() else None

    def identity_rules(self) -> Path | None:
        """Identity rules, if the example has others than the default ones."""
        file = self.folder / "identity-rules.json"
        return file if file.exists() else None

    def behaviour(self) -> Path | None:
        """Activities and derived attributes, if the example has some."""
        file = self.folder / "behaviour.json"
        return file if file.exists() else None

    def lay_out(self, target: Path) -> Path:
        """Make an empty folder to run in, with a copy of the configuration; gives the copy.

        A folder of an earlier demo is replaced. Raises ConfigError for a folder that is somebody's own.
        """
        if target.exists() and any(target.iterdir()):
            if not (target / MARKER).exists():
                raise ConfigError(
                    f"{target} is not empty and not of an earlier demo; give another --directory"
                )
            shutil.rmtree(target)
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        (target / MARKER).touch()
        return Path(shutil.copy(self.folder / "idgraph.toml", target))

    def files(self, settings: Settings) -> Iterator[tuple[str, list[bytes]]]:
        """The data in pieces of one file each, the sources in turn: (source, lines)."""
        streams = {source.name: _chunks(self._lines(source.name)) for source in settings.sources}
        while streams:
            for name in list(streams):
                chunk = next(streams[name], None)
                if chunk is None:
                    del streams[name]
                else:
                    yield name, chunk

    def _lines(self, source: str) -> Iterator[bytes]:
        data = self.folder / "data"
        for file in sorted([*data.glob(f"{source}.jsonl*"), *data.glob(f"{source}/*.jsonl*")]):
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
                for line in stream:
                    yield self.moved(source, line)

    def moved(self, source: str, line: bytes) -> bytes:
        """An event of a source, as many days later as `newest` of `demo.toml` lies before yesterday: as if the data were of these
        days. A line that is no JSON object stays as it is."""
        line = line if line.endswith(b"\n") else line + b"\n"
        keys = self.shown.get("times", {}).get(source, ())
        try:
            event = canonical.decode(line) if keys else None
        except canonical.MalformedJSON:
            return line
        if type(event) is not dict:
            return line
        for key in keys:
            event[key] = _later(event.get(key), self._days)
        return canonical.encode_ordered(event) + b"\n"

    @cached_property
    def _days(self) -> int:
        newest = self.shown.get("newest")
        return 0 if newest is None else (datetime.now(UTC).date() - newest).days - 1


def _later(time: Any, days: int) -> Any:
    """A time in epoch milliseconds or as RFC 3339; anything else as it is."""
    if type(time) is int:
        return time + days * DAY_MS
    try:
        return (datetime.fromisoformat(time) + timedelta(days=days)).isoformat(timespec="microseconds")
    except (TypeError, ValueError):
        return time


def _chunks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    while chunk := list(islice(lines, EVENTS_PER_FILE)):
        yield chunk
