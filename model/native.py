"""The native loops (native/loops.c), where a C compiler built them; without them their Python twins run.

`IDGRAPH_NATIVE=off` leaves them out. See docs/adr/0013-native-loops.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast
from zlib import crc32

from model.fragments import Kind, Origin, Register
from model.stamps import SpecRef, Stamp

VARIABLE = "IDGRAPH_NATIVE"
SOURCE = Path(__file__).parents[1] / "native" / "loops.c"


class Loops(Protocol):
    """What the extension offers; native/loops.c says of each what it does and names its twin."""

    SOURCE: int

    def bind(
        self, register: type, origin: type, stamp: type, spec: type, kinds: tuple[Kind, ...], /
    ) -> None: ...
    def bind_walk(
        self,
        node: type,
        to_seal: type,
        shaped: Callable[[str], Any],
        harmless: set[str],
        card_as_number: Callable[[int], Any],
        /,
    ) -> None: ...
    def walk(
        self,
        root: Any,
        tree: dict[str, Any],
        skipped: str,
        origin: Origin,
        found: Any,
        plain: dict[str, Register],
        to_seal: list[Any],
        rest: Callable[[Any, dict[str, Any], Origin, Any], None],
        /,
    ) -> None: ...
    def body(
        self,
        registers: dict[str, Register],
        identifiers: dict[str, Origin],
        markers: list[Any],
        encode: Callable[[Any], bytes],
        /,
    ) -> bytes | None: ...
    def registers(self, wire: dict[str, Any], origins: list[Origin], /) -> None: ...
    def origins(self, wire: list[tuple[int, int, str, str, str, int]], /) -> list[Origin]: ...
    def fields(
        self,
        registers: dict[str, Register],
        replaced: set[str],
        is_indexable: Callable[[str], bool],
        odd: Callable[[Kind, Any], Any],
        /,
    ) -> dict[str, Any]: ...
    def lines(
        self,
        fields: Mapping[str, Any],
        seen: Mapping[str, dict[str, str]],
        paths: Mapping[str, tuple[str, ...]],
        odd: Callable[[str, Any], str],
        /,
    ) -> list[str]: ...


def _found() -> tuple[Loops | None, str]:
    """What there is to use, and why."""
    if os.environ.get(VARIABLE) == "off":
        return None, f"off ({VARIABLE})"
    try:
        built = cast(Loops, import_module("model._loops"))
    except ImportError:
        return None, "not built"
    # The source is there in a checkout only: updated since, it would meet an old build.
    if SOURCE.exists() and crc32(SOURCE.read_bytes()) != built.SOURCE:
        return None, "built from another source"
    built.bind(Register, Origin, Stamp, SpecRef, tuple(Kind))
    return built, "in use"


built, state = _found()
"""The extension, and in words whether it is used: for `idgraph --version` and benchmarks."""

loops: Loops | None = built
"""Looked up by each loop when it starts."""


def use(wanted: bool) -> None:
    """For tests and benchmarks, which run both: whether the native loops are used, where there are some."""
    global loops  # noqa: PLW0603 - a switch for the process
    loops = built if wanted else None
