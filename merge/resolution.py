"""The values of a fragment: values with their provenance, and profiles of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.fragments import Kind, Origin, Register
from merge.fragments import FragmentState
from merge.policies import POLICIES

_LATEST = ReconciliationPolicy.LATEST


def tree(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Attribute paths and values as nested objects. No path may be a prefix of another."""
    root: dict[str, Any] = {}
    for path, value in leaves:
        *above, last = paths.split(path)
        node = root
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return root


class Shown(NamedTuple):
    """One path that shows. `parts` are registers whose values make the one that shows, for most policies one.

    `is_complete` is False where a bound keeps a policy from seeing all that was written.
    """

    path: str
    parts: Sequence[Register]
    policy: ReconciliationPolicy = _LATEST
    is_complete: bool = True

    @property
    def newest(self) -> Register:
        """The part with the latest origin."""
        return max(self.parts, key=lambda part: part.origin)

    @property
    def is_sealed(self) -> bool:
        return Kind.SEALED in [part.kind for part in self.parts]

    def named(self, origin: Callable[[Origin], Origin]) -> Shown:
        """The same with the origins of its parts in the form in which they may be shown."""
        return self._replace(parts=[part._replace(origin=origin(part.origin)) for part in self.parts])

    def value(self, values: Sequence[Any]) -> Any:
        """The resolved value, given the values of `parts` as they may be read."""
        return values[0] if self.policy is _LATEST else POLICIES[self.policy].value(values)


def shown(state: FragmentState, policies: Mapping[str, Reconciliation]) -> Iterator[Shown]:
    """All that a normalised state shows. A path of which the policy has kept nothing yet, because its events
    were mapped under another, shows its latest value."""
    reconciled = {
        path: reconciliation
        for path in state.cells
        if (reconciliation := policies.get(path)) and reconciliation.policy in state.cells[path]
    }
    if not reconciled:
        # As a NamedTuple's constructor does, without its call: there is one for each leaf.
        yield from [tuple.__new__(Shown, (path, (each,), _LATEST, True)) for path, each in state.visible()]
        return
    replaced = state.replaced()
    for path, register in state.registers.items():
        if path in replaced:
            continue
        if path in reconciled:
            yield from _reconciled(state, path, reconciled[path])
        elif register.kind is not Kind.DELETED:
            yield Shown(path, (register,))


def _reconciled(state: FragmentState, path: str, reconciliation: Reconciliation) -> Iterator[Shown]:
    policy, sources = reconciliation
    cell = state.cells[path][policy]
    removals = state.removals(path)
    parts = cell.shown(sources, removals)
    if parts:
        yield Shown(path, parts, policy, cell.is_complete(removals))
    elif state.registers[path].kind is not Kind.DELETED:
        # Later than whatever took the entries away, and no entry: a text under `sum`, no element under `union`.
        yield Shown(path, (state.registers[path],))


@lru_cache(maxsize=16)
def hides(roots: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a path is one of these, or lies above or below one."""
    first = {paths.split(each)[0] for each in roots}

    def is_hidden(path: str) -> bool:
        return path.partition(".")[0] in first and any(
            paths.is_within(path, each) or paths.is_within(each, path) for each in roots
        )

    return is_hidden
