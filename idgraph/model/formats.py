"""Versions of formats: whether this idgraph reads what another one wrote.

Each file or database says its own version, because each can come from a backup of its own. Code that opens one asks
here. Version 1 is the first that later versions read; 0 stands for all before it.
"""

from __future__ import annotations

from idgraph.model.errors import IdgraphError

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
