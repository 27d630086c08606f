"""What suggestions compare of each profile."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from idgraph.model import canonical
from idgraph.model.errors import ConfigError
from profile_service.reader import ProfileReader


def compared_values(
    reader: ProfileReader, attributes: Collection[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The values of some attributes of each profile, by its id. Raises ConfigError for a protected one."""
    for profile in reader.scan():
        leaves = {leaf.path: leaf for leaf in profile.leaves if leaf.path in attributes}
        hidden = sorted(path for path, leaf in leaves.items() if leaf.protected)
        if hidden:
            raise ConfigError(f"policy protects {hidden[0]}: compare other attributes")
        values = {path: _text(leaf.value) for path, leaf in leaves.items()}
        yield profile.id, {path: value for path, value in values.items() if value}


def _text(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else canonical.encode(value).decode()
