"""Reconciliation policies: the entries that each keeps at a path, and the value that they resolve to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, NamedTuple

from idgraph.model import canonical
from idgraph.model.fragments import Kind, Register
from idgraph.model.stamps import Stamp


def later(a: Register, b: Register) -> Register:
    """The winner of two registers: commutative, associative, idempotent."""
    if a[0] != b[0]:
        return a if a[0] > b[0] else b
    return a if tie_break(a) >= tie_break(b) else b


def tie_break(register: Register) -> tuple[int, bytes]:
    """The order of two values of one origin. Never by `==`: to Python 1, 1.0 and True are equal, and
    the first to arrive would stay; and values of different types do not compare."""
    return register[1], canonical.encode(register[2])


class Kept(NamedTuple):
    """The candidates of a choice: the entries, the best of each source where it is kept, and the sources that
    the attribute names, the most trusted first."""

    entries: Sequence[Register]
    best: Sequence[Register]
    sources: Sequence[str]


class Policy(ABC):
    """Stateless; `merge.cells.Cell` holds the entries and joins them, `better` and `key` say how.

    An entry is a register: a value, or a part of one, under the origin of the event that wrote it. If two entries of
    one source have the same key, the later one stays. The newest `bound` entries of each source stay. A removal (a
    null, a snapshot event, a later leaf above the path) takes all entries of a source up to some stamp. So it does
    not matter whether it comes before or after the bound is reached.
    """

    BOUND: ClassVar[int]
    keeps_best: ClassVar[bool] = False
    """Whether the best entry of each source is kept beyond the bound."""
    shares_origins: ClassVar[bool] = False
    """Whether one written value may make several entries."""
    keeps_values: ClassVar[bool] = True
    """Whether entries hold anything of the values that were written."""
    null_deletes: ClassVar[bool] = True
    """Whether a null takes away all that is older, of whatever source. If not, it is an entry."""

    def __init__(self, bound: int | None = None) -> None:
        self.bound = self.BOUND if bound is None else bound

    def entries(self, register: Register) -> Sequence[Register]:
        """The entries of a written register; none if the policy cannot read it."""
        return (register,)

    def key(self, entry: Register) -> Hashable:
        """The key that distinguishes an entry from others of its source: by default the event. The spec's priority, which may change
        from one version to the next, does not make another event of it."""
        stamp: Stamp = entry[0][0]
        return stamp[1:]

    def better(self, one: Register, other: Register) -> bool:
        """Whether `one` is to show rather than `other`; a total order. Only asked where `keeps_best`."""
        raise NotImplementedError

    def taken(self, best: Register) -> Register:
        """In which form the best is kept once something took it away; `better` must not see the difference."""
        return best

    def rank(self, entry: Register) -> Any:
        """The order of one source's entries: by origin, then by their values."""
        return (entry[0], tie_break(entry)) if self.shares_origins else entry[0]

    @abstractmethod
    def chosen(self, kept: Kept) -> list[Register]:
        """The entries that show, in the order in which `value` takes them."""

    @abstractmethod
    def value(self, values: Sequence[Any]) -> Any:
        """The resolved value of the chosen entries."""


def is_plain(register: Register) -> bool:
    """Whether a register has a value that can be read."""
    return register[1] is Kind.PLAIN
