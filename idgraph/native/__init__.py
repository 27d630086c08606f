"""The native modules (native/*.c) where a C compiler built them; without them the Python references run.

`IDGRAPH_NATIVE=off` leaves them out. See docs/adr/0013-native-loops.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar
from zlib import crc32

from idgraph.model.fragments import Kind, Origin, Register

VARIABLE = "IDGRAPH_NATIVE"
SOURCES = Path(__file__).parents[2] / "native"


class Events(Protocol):
    """From records to mapped events; native/events.c says of each what it does and names its reference implementation."""

    SOURCE: int

    def reader(
        self,
        places: tuple[tuple[str, ...] | None, ...],
        constants: tuple[Any, ...],
        payload: tuple[str, ...],
        decode: Callable[[bytes], Any],
        event: type,
        read_ordinal: Callable[[Any], int],
        reference: Callable[[Any], Any],
        /,
    ) -> Callable[[Any], Any]: ...
    def mapper(
        self,
        id_place: tuple[str, ...] | None,
        ordinal_place: tuple[str, ...] | None,
        places: tuple[tuple[str, tuple[str, ...], bool], ...],
        transform: Callable[..., Any],
        priority: int,
        mapped: type,
        stamp: type,
        identifier: type,
        read_ordinal: Callable[[Any], int],
        reference: Callable[[Any, Any], Any],
        /,
    ) -> Callable[[Any], Any]: ...
    def chunk_mapper(
        self,
        types: tuple[type, ...],
        readers: Mapping[str, Callable[[Any], Any]],
        routes: Mapping[tuple[str, str], Any],
        find_route: Callable[[str, str], Any],
        protect: Callable[[Any], Any],
        leaves: tuple[Any, ...],
        take_back: Callable[[Any], None],
        timed: frozenset[str],
        earliest: int,
        /,
    ) -> Callable[..., tuple[int, int]]: ...


class NativeLeaves(Protocol):
    """The leaves of an event; native/leaves.c says of each what it does and names its reference implementation."""

    SOURCE: int

    def bind(
        self,
        register: type,
        kinds: tuple[Kind, Kind],
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
    def state(
        self,
        root: Any,
        tree: dict[str, Any],
        skipped: str,
        origin: Origin,
        identifiers: tuple[Any, ...],
        policies: Mapping[str, Any],
        found: Any,
        plain: dict[str, Register],
        to_seal: list[Any],
        rest: Callable[[Any, dict[str, Any], Origin, Any], None],
        encode: Callable[[Any], bytes],
        /,
    ) -> bytes | None: ...
    def protector(
        self,
        sealed_types: frozenset[str],
        undecided_types: frozenset[str],
        protects: Callable[[Any], bool],
        normal: Callable[[Any], Any],
        hashed: Callable[[Any], Any],
        /,
    ) -> Callable[[Any], Any]: ...


class States(Protocol):
    """States as their bytes: native/states.c says of each function what it does and names its reference implementation."""

    SOURCE: int

    EventStates: Any
    """A type: see `ingestion.stages.map_output.EventStates`."""

    def join_all(self, bodies: tuple[bytes, ...], /) -> bytes | None: ...
    def identifiers(
        self, data: bytes, own: str, /
    ) -> tuple[frozenset[str], tuple[int, str, str] | None] | None: ...
    def fields(
        self,
        states: tuple[bytes, ...],
        is_indexable: Callable[[str], bool],
        odd: Callable[[int, bytes], Any],
        /,
    ) -> dict[str, Any] | None: ...


class Programs(Protocol):
    """The machine that runs mapping functions: native/programs.c."""

    SOURCE: int
    INSTRUCTIONS: dict[str, tuple[int, str]]
    """Number and operands of each instruction."""

    def Program(  # noqa: N802 - a type
        self,
        code: list[int],
        constants: tuple[Any, ...],
        shape: tuple[int, int, int, int],
        handlers: tuple[tuple[type[BaseException], int, int], ...],
        /,
    ) -> Callable[..., Any]: ...


class Functions(Protocol):
    """Functions that mapping code calls: native/functions.c."""

    SOURCE: int

    def reference(self, name: str, function: Callable[..., Any], /) -> Callable[..., Any]: ...


NAMES = ("events", "functions", "leaves", "programs", "states")


def _load() -> tuple[Mapping[str, Any], str]:
    """All modules by name, or none of them; and the reason, in words."""
    if os.environ.get(VARIABLE) == "off":
        return {}, f"off ({VARIABLE})"
    try:
        found: dict[str, Any] = {name: import_module(f"idgraph.native._{name}") for name in NAMES}
    except ImportError:
        return {}, "not built"
    # Only a checkout has the sources. They may have changed since the build.
    if SOURCES.is_dir() and any(_digest() != each.SOURCE for each in found.values()):
        return {}, "built from another source"
    return found, "in use"


@cache
def _digest() -> int:
    """The checksum of all sources; setup.py computes the same."""
    return crc32(b"".join(file.read_bytes() for file in sorted(SOURCES.rglob("*.[ch]"))))


_built, state = _load()
"""The modules, and in words whether they are used: for `idgraph --version` and benchmarks."""

built_events: Events | None = _built.get("events")
built_leaves: NativeLeaves | None = _built.get("leaves")
built_states: States | None = _built.get("states")
built_programs: Programs | None = _built.get("programs")
built_functions: Functions | None = _built.get("functions")

events: Events | None = built_events
"""Looked up where a source's reader or a spec is made."""

leaves: NativeLeaves | None = built_leaves
"""Looked up at each use."""

states: States | None = built_states
"""Looked up at each use."""

programs: Programs | None = built_programs
functions: Functions | None = built_functions
"""Looked up when a spec is compiled."""

_names: dict[Any, str] = {}
"""Reference implementations in Python, and the name of each one's function in native/functions.c."""
_references: dict[Any, Callable[..., Any]] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


def reference(name: str) -> Callable[[Function], Function]:
    """Mark a function as the reference implementation of the function `name` in native/functions.c."""

    def mark(function: Function) -> Function:
        _names[function] = name
        return function

    return mark


def reference_of(function: Any) -> Any:
    """The reference implementation of a function, if it has one that can be used; else what was given."""
    if functions is None or not callable(function):
        return function
    try:
        name = _names.get(function)
    except TypeError:
        return function
    if name is None:
        return function
    found = _references.get(function)
    if found is None:
        found = _references[function] = functions.reference(name, function)
    return found


def use(wanted: bool) -> None:
    """For tests and benchmarks, which run both: whether what is native is used, where it is there."""
    global events, leaves, states, programs, functions  # noqa: PLW0603 - a switch for the process
    events = built_events if wanted else None
    leaves = built_leaves if wanted else None
    states = built_states if wanted else None
    programs = built_programs if wanted else None
    functions = built_functions if wanted else None
