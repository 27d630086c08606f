"""The cell of a path under a policy other than `latest`: a join-semilattice beside the path's register.

A cell is made of entries (see `merge.policies.Policy`), joined by source and key. It also has the latest null and,
for some policies, the best entry of each source. Every removal takes a beginning of one source's entries, in the
order of the stamps:

- a null takes entries that are not later than it, and so does a later leaf above the path (of all sources);
- a snapshot event takes its source's earlier entries, and its values replace them;
- the bound takes all but the newest so many of a source.

Such removals commute with each other and with the join, so normalised cells join to what the originals do. The best
entry is another matter: the next best may have been dropped when it is taken away. So the best that a source ever
wrote stays, and shows unless something took it away; then the best of the newest shows. A removed best entry that
stays keeps others from being taken for the best, in whatever order they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.stamps import Stamp
from merge.policies.policy import Kept, Policy, later


class Removals(NamedTuple):
    """The removals of entries from outside of the cell: the latest register above its path, and the newest
    snapshot event that covers it, by source."""

    above: Origin | None
    snapshots: Mapping[str, Stamp]

    def take(self, entry: Register, floor: Origin | None) -> bool:
        """Whether they take an entry away, or its cell's `floor` does."""
        origin = entry[0]
        return (
            (floor is not None and origin <= floor)
            or (self.above is not None and origin <= self.above)
            or _is_replaced(entry, self.snapshots)
        )


class Cell:
    """The entries of one policy at one path. Mutable while it is joined; call `normalise` before it is read."""

    __slots__ = ("best", "entries", "floor", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.entries: dict[tuple[str, Hashable], Register] = {}
        """By source and key."""
        self.best: dict[str, Register] = {}
        self.floor: Origin | None = None
        """The origin of the latest null; entries that are not later are gone."""

    def write(self, register: Register, entries: Iterable[Register] | None = None) -> None:
        """Join in what one event wrote at the path; `entries` where the register does not report them."""
        if register.kind is Kind.DELETED and self.policy.null_deletes:
            self._raise_floor(register.origin)
            return
        for entry in self.policy.entries(register) if entries is None else entries:
            self.add(entry)

    def add(self, entry: Register) -> None:
        """Join in one entry."""
        self._add(entry)
        if self.policy.keeps_best:
            self._add_best(entry)

    def join(self, other: Cell) -> bool:
        """Join in another cell of the same policy; gives whether that changed anything."""
        changed = self._raise_floor(other.floor)
        for entry in other.entries.values():
            changed |= self._add(entry)
        for entry in other.best.values():
            changed |= self._add_best(entry)
        return changed

    def _raise_floor(self, origin: Origin | None) -> bool:
        if origin is None or (self.floor is not None and self.floor >= origin):
            return False
        self.floor = origin
        return True

    def _add(self, entry: Register) -> bool:
        place = entry[0][0][2], self.policy.key(entry)
        mine = self.entries.get(place)
        if mine is not None and later(mine, entry) is mine:
            return False
        self.entries[place] = entry
        return True

    def _add_best(self, entry: Register) -> bool:
        source = entry[0][0][2]
        mine = self.best.get(source)
        if mine is not None and not self.policy.better(entry, mine):
            return False
        self.best[source] = entry
        return True

    def normalise(self, removals: Removals) -> bool:
        """Drop what can never show again; idempotent. Gives whether anything is left to keep."""
        above, snapshots = removals
        if self.floor is not None and above is not None and above >= self.floor:
            # Forgotten, as it is where the whole cell went before something came that is later than both.
            self.floor = None
        floor = above if self.floor is None else self.floor
        if floor is not None or snapshots:
            self._keep(lambda entry: not removals.take(entry, floor))
            for source, best in self.best.items():
                if removals.take(best, floor):
                    self.best[source] = self.policy.taken(best)
        if len(self.entries) > self.policy.bound:
            self._drop_the_oldest()
        return self.keeps_anything

    @property
    def keeps_anything(self) -> bool:
        """Whether it is more than an empty one."""
        return bool(self.floor or self.entries or self.best)

    def _keep(self, stays: Callable[[Register], bool]) -> None:
        if not all(map(stays, self.entries.values())):
            self.entries = {place: entry for place, entry in self.entries.items() if stays(entry)}

    def _drop_the_oldest(self) -> None:
        kept: dict[tuple[str, Hashable], Register] = {}
        rank = self.policy.rank
        ranked = sorted(self.entries.items(), key=lambda item: (item[0][0], rank(item[1])))
        for _, some in groupby(ranked, key=lambda item: item[0][0]):
            kept.update(list(some)[-self.policy.bound :])
        self.entries = kept

    def shown(self, sources: Iterable[str], removals: Removals) -> list[Register]:
        """The entries that show, in the order in which `Policy.value` takes their values. The cell must be normalised by
        these `removals`."""
        best = tuple(each for each in self.best.values() if not removals.take(each, self.floor))
        return self.policy.chosen(Kept(tuple(self.entries.values()), best, tuple(sources)))

    def is_complete(self, removals: Removals) -> bool:
        """Whether the bound dropped no counting entry, as far as known."""
        if not self.policy.null_deletes or len(self.entries) < self.policy.bound:
            return True
        of_each = Counter(source for source, _ in self.entries)
        full = [source for source, count in of_each.items() if count >= self.policy.bound]
        if not self.policy.keeps_best:
            return not full
        kept = (self.best.get(source) for source in full)
        return all(each is not None and not removals.take(each, self.floor) for each in kept)

    def rewritten(
        self, form: Callable[[Register], Register], origin: Callable[[Origin], Origin] = lambda same: same
    ) -> Cell:
        """A cell with all entries in another form, and their origins too: `form` gives an entry's register with
        both. Entries that the policy cannot keep in that form, such as sealed values, are dropped."""
        made = Cell(self.policy)
        made.floor = None if self.floor is None else origin(self.floor)
        if not self.policy.keeps_values:
            made.keep((e._replace(origin=origin(e.origin)) for e in self.entries.values()), ())
            return made
        made.keep(self._forms(self.entries.values(), form), self._forms(self.best.values(), form))
        return made

    def _forms(self, entries: Iterable[Register], form: Callable[[Register], Register]) -> Iterator[Register]:
        for entry in entries:
            made = form(entry)
            yield from (made,) if made.kind is entry.kind else self.policy.entries(made)

    def origins(self) -> Iterator[Origin]:
        """All origins that it holds."""
        yield from () if self.floor is None else (self.floor,)
        yield from (entry.origin for entry in (*self.entries.values(), *self.best.values()))

    def keep(self, entries: Iterable[Register], best: Iterable[Register]) -> None:
        """Join in entries, and those that are the best, each as they were kept by a cell."""
        for entry in entries:
            self._add(entry)
        for entry in best:
            self._add_best(entry)


def _is_replaced(entry: Register, snapshots: Mapping[str, Stamp]) -> bool:
    stamp = entry[0][0]
    newest = snapshots.get(stamp[2])
    return newest is not None and stamp < newest
