"""A mapping spec drafted from sample events, each line with its reason. Pure: values of the sample are in no part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from idgraph.model import paths
from idgraph.model.errors import SpecError
from idgraph.model.specs import RESERVED_KEY, IdentifierPlace, SpecDefinition, SpecType
from metadata_service.drafting import roles
from metadata_service.drafting.roles import Guess
from metadata_service.drafting.sample import NAMES, SampleLeaf, read_sample, words
from metadata_service.drafting.targets import (
    PLAIN,
    DraftTarget,
    Targets,
    camel,
    own_path,
    without_those_of_others,
)
from transforms.spec.pointers import pointer

LineRole = Literal["event id", "ordinal", "event name", "identifier"]
_SPECIAL = frozenset("*|&$#@[].\\")
_COMPLETED = {"text without offset": ("Z", "=epochMs"), "seconds": ("000", "=toLong")}


class DraftLine(BaseModel):
    """The result for one leaf of the sample."""

    path: str = Field(description="JSON pointer into the payload.")
    type: str
    count: int = Field(description="Number of the sample's events that have it.")
    maps_to: list[str] = Field(default=[], description="Paths of the output; none: it is left out.")
    role: LineRole | None = None
    reason: str
    confidence: float = Field(description="From 0 to 1.")
    looks_like: str | None = Field(default=None, description="The kind that a detector finds in its values.")


class SpecDraft(BaseModel):
    """A spec that compiles, and how it came about."""

    definition: SpecDefinition
    lines: list[DraftLine]
    is_cut: bool = Field(description="The sample has more leaves than were looked at.")


def draft_spec(
    name: str,
    source: str,
    event_type: str,
    events: Sequence[dict[str, Any]],
    known: Mapping[str, str] | None = None,
    namespaces: Mapping[str, str] | None = None,
    sources: Iterable[str] = (),
) -> SpecDraft:
    """`known` are attributes with their types, `namespaces` types of identifiers with the paths that specs give them,
    `sources` those that have specs: what lies below the name of another one is its own. Raises SpecError when no leaf
    can name a person."""
    made = _Drafting(events, source, without_those_of_others(known or {}, source, sources), namespaces or {})
    order = "" if made.ordinal else " It reads no order from them: the source's configuration must name one."
    definition = SpecDefinition(
        name=name,
        description=f"Drafted from a sample of {len(events)}.{order}",
        specification_type=SpecType.JOLT,
        source=source,
        event_type=event_type,
        operations=made.operations(),
        id=f"{RESERVED_KEY}.id" if made.id else None,
        ordinal=f"{RESERVED_KEY}.ordinal" if made.ordinal else None,
        identifiers=tuple(made.places),
    )
    sample = made.sample
    lines = [made.lines[leaf] for leaf in (*sample.leaves, *sample.left_out)]
    return SpecDraft(definition=definition, lines=lines, is_cut=sample.is_cut)


class _Drafting:
    """The draft while it is made: roles first, then each leaf that has none."""

    def __init__(
        self,
        events: Sequence[dict[str, Any]],
        source: str,
        known: Mapping[str, str],
        namespaces: Mapping[str, str],
    ) -> None:
        self.sample = sample = read_sample(events)
        self._targets = Targets(known)
        self._root = camel(*(words(source) or ("source",)))
        self.lines: dict[SampleLeaf, DraftLine] = {}
        self.places: list[IdentifierPlace] = []
        self._shift: dict[str, Any] = {}
        self._changes: list[dict[str, str]] = [{}, {}]
        self._taken: dict[tuple[str, ...], int] = {}
        self._above: set[tuple[str, ...]] = set()
        self.id, self.ordinal = roles.event_id(sample, source), roles.ordinal(sample)
        identifiers = roles.identifiers(sample, namespaces)
        if not identifiers:
            hint = "add events that have a customer number or an e-mail address"
            raise SpecError("no leaf of the sample can name a person", "/events", hint)
        name = roles.event_name(sample)
        is_taken = name and name.leaf in [each.leaf for each in (self.id, self.ordinal, *identifiers) if each]
        self._name = None if is_taken else name
        self._map_envelope()
        named = self._events_by_name(events)
        for number, guess in enumerate(identifiers):
            if number and self._is_property(guess.leaf, named):
                self._map_property(guess.leaf, named, guess)
            else:
                self._map_identifier(guess, namespaces)
            for path in self.lines[guess.leaf].maps_to:
                if not path.startswith((f"{RESERVED_KEY}.id", f"{RESERVED_KEY}.ordinal")):
                    is_fallback = number > 0 and guess.is_fallback
                    self.places.append(
                        IdentifierPlace(type=guess.name, path=path, primary=number == 0, fallback=is_fallback)
                    )
        for leaf in sample.leaves:
            if leaf in self.lines:
                continue
            if self._is_property(leaf, named):
                self._map_property(leaf, named)
            else:
                self._map(leaf)
        for leaf, reason in sample.left_out.items():
            self._leave_out(leaf, reason, 0.6)

    def operations(self) -> list[dict[str, Any]]:
        """The chain."""
        made: list[dict[str, Any]] = [{"operation": "shift", "spec": self._shift}]
        for changes in self._changes:
            spec: dict[str, Any] = {}
            for path, function in changes.items():
                *above, last = paths.split(path)
                below = spec
                for key in above:
                    below = below.setdefault("+_event" if key == RESERVED_KEY else f"{key}?", {})
                below[f"{last}?"] = function
            made += [{"operation": "modify-overwrite-beta", "spec": spec}] if spec else []
        return made

    def _map_envelope(self) -> None:
        if self.id is not None:
            self._put(self.id.leaf, f"{RESERVED_KEY}.id", self.id, "event id")
        if self.ordinal is not None:
            for path in (f"{RESERVED_KEY}.ordinal", *(["activity.lastSeenAt"] if self._name else ())):
                self._put(self.ordinal.leaf, path, self.ordinal, "ordinal")
                time = self.ordinal.leaf.time
                if time == "text":
                    self._changes[0][path] = "=epochMs"
                elif time in _COMPLETED:
                    end, self._changes[1][path] = _COMPLETED[time]
                    self._changes[0][path] = f"=concat(@(1,{paths.split(path)[-1]}),'{end}')"
        if self._name is not None:
            self._put(self._name.leaf, "activity.lastEvent", self._name, "event name")

    def _map_identifier(self, guess: Guess, namespaces: Mapping[str, str]) -> None:
        leaf = guess.leaf
        usual = namespaces.get(guess.name, f"identity.{camel(*guess.name.split('_'))}")
        is_usual = PLAIN.fullmatch(usual) and not usual.startswith("activity.")
        tried = [*([usual] if is_usual else ()), own_path(leaf, self._root)]
        path = next(
            (each for each in tried if self._is_free(each, leaf.events)), f"{RESERVED_KEY}.by.{guess.name}"
        )
        self._put(leaf, path, guess, "identifier")

    def _events_by_name(self, events: Sequence[dict[str, Any]]) -> dict[str, int]:
        found: dict[str, int] = {}
        if self._name is None or not roles.is_frequent(self._name.leaf, self.sample):
            return found
        for number, event in enumerate(events):
            value = event.get(self._name.leaf.keys[0])
            if isinstance(value, str) and words(value):
                found[value] = found.get(value, 0) | 1 << number
        return dict(list(found.items())[: roles.MOST_NAMES])

    def _is_property(self, leaf: SampleLeaf, named: dict[str, int]) -> bool:
        """Whether it is there in events of some names only, and in the object that holds what is special to each."""
        holder = leaf.keys[0]
        is_held = words(holder)[-1] in NAMES["properties"] and words(holder)[0] not in ("user", "person")
        is_plain = (
            len(leaf.keys) > 1 and re.fullmatch(r"\w+", holder) is not None and not roles.is_transport(leaf)
        )
        is_alone = len(named) == 1 and self._name is not None and self._name.leaf.words != ("type",)
        return bool(named) and is_held and is_plain and (leaf.count < self.sample.size or is_alone)

    def _map_property(self, leaf: SampleLeaf, named: dict[str, int], guess: Guess | None = None) -> None:
        """Under each name of an event that has it."""
        line = self._leave_out(leaf, "no name of an event stands beside it", 0.4)
        for name, having in named.items():
            events = leaf.events & having
            root = f"activity.{camel(*words(name))}"
            own = DraftTarget(own_path(leaf, root, 1), "a value of this event", 0.7)
            target = self._free(self._targets.find(leaf, words(name)), own, events)
            if events and target is not None and self._name is not None:
                top, selected, *below = map(_escaped, (self._name.leaf.keys[0], name, *leaf.keys[1:]))
                place = (top, selected, f"@(2,{leaf.keys[0]})", *below)
                why = guess or target
                line.reason, line.confidence = why.reason, why.confidence
                self._put(leaf, target.path, why, "identifier" if guess else None, place, events)

    def _map(self, leaf: SampleLeaf) -> None:
        if roles.is_transport(leaf):
            self._leave_out(leaf, "says how the event travelled, not who the person is", 0.7)
            return
        own = DraftTarget(own_path(leaf, self._root), "no attribute has this name: it keeps its own", 0.5)
        target = self._free(self._targets.find(leaf), own, leaf.events)
        if target is None:
            self._leave_out(leaf, "another leaf has its place", 0.4)
        else:
            self._put(leaf, target.path, target)

    def _free(self, found: DraftTarget | None, fallback: DraftTarget, events: int) -> DraftTarget | None:
        return next((each for each in (found, fallback) if each and self._is_free(each.path, events)), None)

    def _is_free(self, path: str, events: int) -> bool:
        """Two leaves at one path, in one event, would make an array; a leaf and an object cannot be at one path."""
        keys = paths.split(path)
        is_within = any(keys[:length] in self._taken for length in range(1, len(keys)))
        return not is_within and keys not in self._above and not self._taken.get(keys, 0) & events

    def _put(
        self,
        leaf: SampleLeaf,
        path: str,
        why: Guess | DraftTarget,
        role: LineRole | None = None,
        place: tuple[str, ...] = (),
        events: int | None = None,
    ) -> None:
        keys = paths.split(path)
        self._taken[keys] = self._taken.get(keys, 0) | (leaf.events if events is None else events)
        self._above |= {keys[:length] for length in range(1, len(keys))}
        line = self.lines.get(leaf) or self._leave_out(leaf, why.reason, why.confidence)
        line.maps_to.append(path)
        if path.startswith("identity.name."):
            line.looks_like = line.looks_like or "person_name"
        line.role = role or line.role
        if leaf.is_decimal_text and not isinstance(why, Guess):
            self._changes[0][path] = "=toDouble"
            line.reason = f"{why.reason}; its texts become numbers"
        elif isinstance(why, Guess) and why.name == "email":
            self._changes[0][path], self._changes[1][path] = "=trim", "=toLower"
        elif (
            isinstance(why, Guess)
            and why.name
            and leaf.texts(r"\d+")
            and any(each[0] == "0" for each in leaf.values)
        ):
            self._changes[0][path] = "=stripLeadingZeros"
        node = self._shift
        *above, last = place or map(_escaped, leaf.keys)
        for key in above:
            below = node.setdefault(key, {})
            if not isinstance(below, dict):
                below = node[key] = {"@": below}
            node = below
        if isinstance(node.get(last), dict):
            node, last = node[last], "@"
        held = node.get(last, [])
        node[last] = [*(held if isinstance(held, list) else [held]), path] if held else path

    def _leave_out(self, leaf: SampleLeaf, reason: str, confidence: float) -> DraftLine:
        shown = {
            "path": pointer(*leaf.keys),
            "type": leaf.type,
            "count": leaf.count,
            "looks_like": leaf.looks_like,
        }
        made = self.lines[leaf] = DraftLine(**shown, reason=reason, confidence=round(confidence, 2))
        return made


def _escaped(key: str) -> str:
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in key)
