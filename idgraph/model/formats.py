"""Versions of formats: whether this idgraph reads what another one wrote.

Each file or database says its own version, because each can come from a backup of its own. Code that opens one asks
here. Version 1 is the first that later versions read; 0 stands for all before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from idgraph.model.errors import ConfigError, IdgraphError

UPGRADES = "docs/operate.md#upgrades"


def require_format(
    place: object, found: int, newest: int, refusal: type[IdgraphError], remedy: str, oldest: int = 1
) -> None:
    """Raise `refusal` unless this idgraph reads or migrates the format: one from `oldest` to `newest`.

    The message has the place, both versions and the command; `remedy` is that for an older format.
    """
    if found > newest:
        raise refusal(
            f"{place}: has format {found}, written by a newer idgraph, and this one reads {_reads(oldest, newest)}; "
            f"install the newer one again, or restore the backup made before its upgrade ({UPGRADES})"
        )
    if found < oldest:
        raise refusal(
            f"{place}: has format {found or '0, from before the first release'}, and this idgraph reads "
            f"{_reads(oldest, newest)}; {remedy} ({UPGRADES})"
        )


def _reads(oldest: int, newest: int) -> str:
    return str(newest) if oldest == newest else f"{oldest} to {newest}"


class FormatRange(NamedTuple):
    """The formats that a version of idgraph reads, of one file or database; it writes the newest."""

    oldest: int
    newest: int


READ: Mapping[str, Mapping[str, FormatRange]] = {
    "0.1.0": {
        "metadata.db": FormatRange(1, 4),
        "dead-letters.db": FormatRange(1, 3),
        "profiles.db": FormatRange(1, 2),
        **dict.fromkeys(
            (
                "data-keys.db",
                "dead-letters.keys.db",
                "jobs.db",
                "households.db",
            ),
            FormatRange(1, 1),
        ),
        "index": FormatRange(3, 3),
        "elasticsearch": FormatRange(4, 4),
    },
}
"""By version of idgraph, the oldest first, where a format has changed: what it reads. `metadata.db` is also the database of
`[metadata] database`. A new format is a new row, of the version that will write it."""


def formats_of(version: str, own: str) -> Mapping[str, FormatRange]:
    """What a version of idgraph reads: the newest row that is not newer. `own` is the version of this idgraph. Raises ConfigError
    for a text that is no version, and for one that is not known here."""
    wanted = _numbers(version)
    if wanted > _numbers(own):
        raise ConfigError(
            f"this idgraph is {own}, and knows no formats of later versions: ask that of {version} (`idgraph doctor --for {version}`)"
        )
    rows = [formats for each, formats in READ.items() if _numbers(each) <= wanted]
    if not rows:
        raise ConfigError(f"there is no idgraph {version}; the first is {next(iter(READ))}")
    return rows[-1]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise ConfigError(f"{version} is no version of idgraph; one looks like {next(iter(READ))}")
    return tuple(int(each or 0) for each in found.groups())
