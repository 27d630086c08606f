"""The places that `shift` and `modify-*` write: certain containers, and writes that cannot meet another.

A container is certain when every path that leads to its place continues below it. Then only a new object or array can
stand there, and the generated function keeps it in a variable. A write is exclusive when no other write can reach its
place. Jolt turns a place into a list at its second value: an exclusive write need not test for that. All other writes
go through the functions of `writers`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from transforms.spec.generation.code import Code
from transforms.spec.jolt.levels import KeySource, Level, Text
from transforms.spec.jolt.writers import OutputPath, StepKind


class State(Enum):
    """Facts about a container's variable at one place of the code."""

    UNSET = auto()
    MAYBE = auto()
    SET = auto()


@dataclass(slots=True, eq=False)
class PathElement:
    """A certain container. The outermost has no parent and is always set."""

    variable: str
    parent: PathElement | None = None
    key: Text = ""
    is_list: bool = False
    is_element: bool = False
    """Whether it is an object in an array; then `key` is the text of its index, or None of no index."""
    depth: int = 0
    """In how many loops it is rebuilt for each round."""
    state: State = State.UNSET
    below: dict[str, PathElement] = field(default_factory=dict)
    """The certain containers at its fixed keys."""
    leaves: set[str] = field(default_factory=set)
    """The fixed keys at which anything may stand."""
    watched: set[str] = field(default_factory=set)
    """Those at which a part of the event stands only if the code noted it (see `nesting`)."""
    is_open: bool = False
    """Whether anything may stand at other keys too."""


def known_object(place: PathElement | None, key: str) -> PathElement | None:
    """The object at a key, if it has a variable: None there means that there is no such key."""
    below = place.below.get(key) if place else None
    return None if below is None or below.is_list else below


def forget(place: PathElement | None, key: str) -> None:
    """Anything may stand at this key from now on."""
    if place:
        place.below.pop(key, None)
        place.leaves.add(key)


def forget_all(place: PathElement | None) -> None:
    """Anything may stand at any key from now on."""
    if place:
        place.below.clear()
        place.is_open = True


@dataclass(slots=True, eq=False)
class Shared:
    """A key of a place that several writes set, and nothing else reaches."""

    variable: str
    """Holds the array that a second value made."""
    depth: int
    state: State = State.UNSET
    """Whether the key may have been written."""


class Target(NamedTuple):
    """The way to write one output path: from a place, along the rest of the path.

    `exclusive` targets have one step left, a key of the place or, for arrays, none; so have those that are
    `shared`.
    """

    place: PathElement
    kinds: tuple[StepKind, ...]
    texts: tuple[Text, ...]
    exclusive: bool
    shared: Shared | None = None


class WalkedPaths:
    """The places of one `shift`."""

    def __init__(self, outputs: list[OutputPath], code: Code) -> None:
        self._code = code
        self.targets: dict[int, Target] = {}
        """By the id of the output path."""
        self.inside: dict[Level, list[PathElement]] = {}
        """The places that are rebuilt for each key that a level matches."""
        # As a rule the output is an object; only then can paths start from it instead of from its holder.
        self.keyed = all(len(output.kinds) > 1 and output.kinds[1] is StepKind.KEY for output in outputs)
        self.root = PathElement(code.fresh("o"), state=State.SET)
        self._divide(self.root, outputs, 1 if self.keyed else 0, ())

    @property
    def all_exclusive(self) -> bool:
        return all(target.exclusive for target in self.targets.values())

    def _divide(
        self, place: PathElement, outputs: list[OutputPath], step: int, loops: tuple[Level, ...]
    ) -> None:
        """All `outputs` write to a key of `place`, at the same step of theirs."""
        if all(isinstance(output.texts[step], str) for output in outputs):
            by_key: dict[Text, list[OutputPath]] = {}
            for output in outputs:
                by_key.setdefault(output.texts[step], []).append(output)
            for key, group in by_key.items():
                self._descend(place, key, group, step, loops)
            return
        inner = self._loop_of(outputs, step, loops)
        if inner is not None:
            self._descend(place, outputs[0].texts[step], outputs, step, (*loops, inner.level))
        else:
            self._generally(place, outputs, step)

    def _loop_of(self, outputs: list[OutputPath], step: int, loops: tuple[Level, ...]) -> KeySource | None:
        """The reference that gives each round of one more loop a key of its own, if all outputs have it."""
        text = outputs[0].texts[step]
        source = None if isinstance(text, str) else text.source
        if source is None or not source.is_distinct:
            return None
        wanted = (*loops, source.level)
        for output in outputs:
            other = output.texts[step]
            if isinstance(other, str) or other.source != source:
                return None
            if output.loops is None or output.loops[: len(wanted)] != wanted:
                return None
        return source

    def _descend(
        self, place: PathElement, key: Text, outputs: list[OutputPath], step: int, loops: tuple[Level, ...]
    ) -> None:
        ending = [len(output.kinds) == step + 1 for output in outputs]
        if any(ending):
            if len(outputs) == 1 and outputs[0].loops == loops:
                self._target(place, outputs[0], step, exclusive=True)
            elif all(ending) and isinstance(key, str) and not loops:
                shared = Shared(self._code.fresh("w", unset=True), len(loops))
                for output in outputs:
                    self._target(place, output, step, exclusive=False, shared=shared)
            else:
                self._generally(place, outputs, step)
            return
        following = {output.kinds[step + 1] for output in outputs}
        if following == {StepKind.KEY}:
            self._divide(self._new(place, key, loops), outputs, step + 1, loops)
        elif following == {StepKind.APPEND} and all(len(output.kinds) == step + 2 for output in outputs):
            below = self._new(place, key, loops)
            below.is_list = True
            for output in outputs:
                self._target(below, output, step + 2, exclusive=True)
        elif following == {StepKind.INDEX} and isinstance(key, str) and not loops:
            self._elements(place, key, outputs, step)
        else:
            self._generally(place, outputs, step)

    def _elements(self, place: PathElement, key: str, outputs: list[OutputPath], step: int) -> None:
        """Objects in an array, found by the key that a loop is at."""
        levels = [_index_level(output, step + 1) for output in outputs]
        if any(level is None for level in levels):
            self._generally(place, outputs, step)
            return
        array = self._new(place, key, ())
        array.is_list = True
        flat = all(output.kinds[step + 2 :] == (StepKind.KEY,) for output in outputs)
        flat &= all(isinstance(output.texts[-1], str) for output in outputs)
        # Nothing reaches below the keys of these elements.
        shared = Shared(self._code.fresh("w", unset=True), 0, State.MAYBE) if flat else None
        elements: dict[Level, PathElement] = {}
        for output, level in zip(outputs, levels, strict=True):
            if level is None or output.loops is None:
                continue
            element = elements.get(level)
            if element is None:
                loops = output.loops[: output.loops.index(level) + 1]
                element = elements[level] = self._new(array, output.texts[step + 1], loops)
                element.is_element = True
            self._target(element, output, step + 2, exclusive=False, shared=shared)

    def _new(self, parent: PathElement, key: Text, loops: tuple[Level, ...]) -> PathElement:
        made = PathElement(self._code.fresh("p", unset=True), parent, key, depth=len(loops))
        if isinstance(key, str):
            parent.below[key] = made
        else:
            parent.is_open = True
        if loops:
            self.inside.setdefault(loops[-1], []).append(made)
        return made

    def _generally(self, place: PathElement, outputs: list[OutputPath], step: int) -> None:
        shared = None
        if all(
            output.kinds[step:] == (StepKind.KEY,) and _is_certain(output.texts[step]) for output in outputs
        ):
            # They may meet at a key, but nothing reaches below it.
            shared = Shared(self._code.fresh("w", unset=True), 0, State.MAYBE)
        for output in outputs:
            self._target(place, output, step, exclusive=False, shared=shared)

    def _target(
        self, place: PathElement, output: OutputPath, step: int, exclusive: bool, shared: Shared | None = None
    ) -> None:
        target = Target(place, output.kinds[step:], output.texts[step:], exclusive, shared)
        self.targets[id(output)] = target


def _is_certain(text: Text) -> bool:
    return isinstance(text, str) or not text.optional


def _index_level(output: OutputPath, step: int) -> Level | None:
    """The level whose key is the index at a step, if an object is to stand there."""
    text = output.texts[step]
    if isinstance(text, str) or text.source is None or text.source.group or output.loops is None:
        return None
    level = text.source.level
    goes_on = len(output.kinds) > step + 1 and output.kinds[step + 1] is StepKind.KEY
    return level if goes_on and level in output.loops else None


@dataclass(slots=True)
class Spot:
    """The place of a child's value: the container's variable, and the key in it."""

    container: str
    key: ast.expr
    size: ast.expr
    """The length of the container, if it is an array, before this operation made it longer."""
    is_object: bool = True
    """Whether the container is an object for certain."""
    place: PathElement | None = None
    """The container, if more is known of it."""
    is_watched: bool = False
    """Whether the code notes what is put there (see `nesting`)."""
