"""Evidence that two identifiers name one person.

The evidence of a pair is a join-semilattice: a map from (source, event id) to a sighting or its retraction, joined entry
by entry, a retraction before a sighting. So it is the same in whatever order and however often events arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, starmap
from typing import NamedTuple

from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef


class Pair(NamedTuple):
    """Two identifiers, the smaller one first."""

    low: Identifier
    high: Identifier

    @classmethod
    def of(cls, one: Identifier, other: Identifier) -> Pair:
        """The pair of two different identifiers, in whichever order they are given."""
        return cls(one, other) if one < other else cls(other, one)


class Moment(NamedTuple):
    """The time of an event, in a total order: `ordinal` in the source's own unit, for times epoch milliseconds."""

    ordinal: int
    source: str
    event_id: str


class Class(NamedTuple):
    """A class of sightings of a pair: the rules count sightings of one class alike.

    `strength` is the event's own, None where its source decides; `repeated` are the namespaces of which the event
    carried several values.
    """

    source: str
    strength: float | None = None
    repeated: tuple[str, ...] = ()


class Span(NamedTuple):
    """The oldest and the newest of some sightings."""

    oldest: Moment
    newest: Moment

    def join(self, other: Span) -> Span:
        """The span of the sightings of both."""
        return Span(min(self.oldest, other.oldest), max(self.newest, other.newest))


class Link(NamedTuple):
    """A pair, and what its evidence amounts to: the span of its sightings by class."""

    pair: Pair
    classes: Mapping[Class, Span]


class Sighting(NamedTuple):
    """One event's evidence of a pair."""

    moment: Moment
    kind: Class
    spec: SpecRef | None = None


class SeenEvent(NamedTuple):
    """The identifiers that one event shows, normalised and without blocked ones, and the pairs that are evidence.

    `pairs` None: all of them, pair by pair.
    """

    moment: Moment
    identifiers: tuple[Identifier, ...]
    strength: float | None = None
    pairs: tuple[Pair, ...] | None = None
    spec: SpecRef | None = None

    def sightings(self) -> dict[Pair, Sighting]:
        """Its evidence by pair."""
        distinct = sorted(set(self.identifiers))
        kind = Class(self.moment.source, self.strength, _repeated(distinct))
        sighting = Sighting(self.moment, kind, self.spec)
        pairs = (Pair(*each) for each in combinations(distinct, 2)) if self.pairs is None else self.pairs
        return dict.fromkeys(pairs, sighting)


def linked(identifiers: Iterable[Identifier], types: Iterable[tuple[str, str]]) -> tuple[Pair, ...]:
    """The pairs of an event's identifiers whose types a mapping spec links."""
    known = {frozenset(pair) for pair in types}
    pairs = combinations(sorted(set(identifiers)), 2)
    return tuple(Pair(*pair) for pair in pairs if frozenset(each.type for each in pair) in known)


class ShownTogether(NamedTuple):
    """Identifiers that events of one source showed together, beside the one that names their fragment. `options` are
    what the spec says of them, empty where every pair is evidence of the source's own strength.

    `event_id` is that of the only event, where the source can take events back; else None. Then `others` has the
    fragment's identifier too; it is empty where the event is taken back.
    """

    source: str
    options: str
    others: tuple[str, ...]
    event_id: str | None = None

    @property
    def is_retraction(self) -> bool:
        """Whether it takes an event back."""
        return self.event_id is not None and not self.others

    def key(self) -> str:
        """Its key in a fragment's state; of one event, that begins with `|`, as no source has an empty name."""
        of_event = () if self.event_id is None else ("", self.event_id)
        return "|".join(map(_escaped, (*of_event, self.source, self.options, *self.others)))

    def pairs(self, primary: Identifier, others: Sequence[Identifier]) -> tuple[Class, list[Pair]]:
        """The class of these events, and the pairs that are evidence. `primary` names the fragment, `others`
        are those shown beside it, in the form in which they are compared."""
        if len(others) == 1 and not self.options and others[0].type != primary.type:
            return Class(self.source), [Pair.of(primary, others[0])]
        identifiers = sorted({primary, *others})
        strength, links = _read_options(self.options)
        pairs = starmap(Pair, combinations(identifiers, 2)) if links is None else linked(identifiers, links)
        return Class(self.source, strength, _repeated(identifiers)), list(pairs)


def shown_key(source: str, identifiers: Sequence[Identifier], options: str = "") -> str:
    """The key of the identifiers that an event shows, of which the first names the fragment. It is source, options
    and the text forms of the others in their order, joined by `|`; in each, `%` and `|` are escaped as in a URL."""
    # Reference of `put_sighting` in native/leaves/state.h.
    others = sorted({f"{kind}:{value}" for kind, value in identifiers[1:]})
    return "|".join(map(_escaped, (source, options, *others)))


def read_key(key: str) -> ShownTogether:
    """The content of a key that `shown_key` made."""
    fields = key.split("|")
    if "%" in key:
        fields = list(map(_unescaped, fields))
    event_id = None
    if is_of_one_event(key):
        _, event_id, *fields = fields
    source, options, *others = fields
    return ShownTogether(source, options, tuple(others), event_id)


def is_of_one_event(key: str) -> bool:
    """Whether a key is of an event of a source that can take events back."""
    return key.startswith("|")


def evidence_of(
    origin: Origin, identifiers: Sequence[Identifier], options: str = "", retracts: str | None = None
) -> tuple[dict[str, Origin], dict[str, tuple[Origin, Origin]]]:
    """The evidence that an event leaves in its fragment's state: identifiers by text form, and sightings by key.

    `retracts` is the id of the event of the same source that it takes back, empty for none; None where the mapping
    spec has no `retracts`. If the spec has it, the event leaves one sighting with its own id, and its identifiers
    stand only there.
    """
    source, event_id = origin.stamp.source, origin.stamp.event_id
    if retracts:
        return {}, {ShownTogether(source, "", (), retracts).key(): (origin, origin)}
    names = {str(each): origin for each in identifiers}
    if retracts is not None:
        return {}, {ShownTogether(source, options, tuple(sorted(names)), event_id).key(): (origin, origin)}
    return names, {shown_key(source, identifiers, options): (origin, origin)} if len(names) > 1 else {}


def options_of(strength: float | None, links: Iterable[tuple[str, str]] | None) -> str:
    """A spec's statements on its events' identifiers, as options of `ShownTogether`: the strength of their evidence,
    None for that of the source; and the pairs of types that are evidence for each other, None for all."""
    if strength is None and links is None:
        return ""
    pairs = None if links is None else ",".join(sorted("+".join(sorted(each)) for each in links))
    return f"{'' if strength is None else repr(strength)};{'*' if pairs is None else pairs}"


def _read_options(options: str) -> tuple[float | None, list[tuple[str, str]] | None]:
    if not options:
        return None, None
    strength, _, links = options.partition(";")
    pairs = [(one, other) for one, _, other in (each.partition("+") for each in links.split(","))]
    return (float(strength) if strength else None), (None if links == "*" else pairs)


def _repeated(distinct: Sequence[Identifier]) -> tuple[str, ...]:
    names = [each.type for each in distinct]
    return tuple(sorted({name for name in names if names.count(name) > 1}))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("|", "%7C") if "%" in text or "|" in text else text


def _unescaped(text: str) -> str:
    return text.replace("%7C", "|").replace("%25", "%")


def links(sightings: Iterable[tuple[Pair, Sighting]]) -> list[Link]:
    """Links of sightings, each of which is given once."""
    found: dict[Pair, dict[Class, Span]] = {}
    for pair, sighting in sightings:
        classes = found.setdefault(pair, {})
        span = Span(sighting.moment, sighting.moment)
        known = classes.get(sighting.kind)
        classes[sighting.kind] = span if known is None else known.join(span)
    return [Link(pair, classes) for pair, classes in found.items()]
