"""Rules applied to some events, without a store: for admins who try rules, and for the acceptance cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from idgraph.model.identifiers import Identifier
from idgraph.model.identity_events import IdentityEvent, Named, PinDocument
from idgraph.model.specs import SpecDocument
from idgraph.model.stamps import Stamp, epoch_ms
from merge.identity.evidence import Moment, Pair, SeenEvent, linked, links
from merge.identity.resolve import Decision, Pin, Resolution, resolve
from merge.identity.rules import Rules


def resolve_seen(rules: Rules, seen: Sequence[SeenEvent], pins: Iterable[PinDocument] = ()) -> Resolution:
    """The persons, accepted links and violations of these events, each of which is given once."""
    first: dict[Identifier, int] = {}
    for event in seen:
        for each in event.identifiers:
            first[each] = min(first.get(each, event.moment.ordinal), event.moment.ordinal)
    evidence = links(item for event in seen for item in event.sightings().items())
    return resolve(evidence, first, _pins(rules, pins), rules)


def seen_events(rules: Rules, events: Iterable[IdentityEvent]) -> list[SeenEvent]:
    """The events that are not taken back, each once, with normalised identifiers."""
    known = list(events)
    retracted = {(each.source, each.retracts) for each in known if each.retracts is not None}
    found: dict[tuple[str, str], SeenEvent] = {}
    for each in known:
        key = each.source, each.id
        if each.retracts is None and key not in retracted and key not in found:
            pairs = None
            if each.links is not None:
                named = (_pair(rules, *link) for link in each.links)
                pairs = tuple(dict.fromkeys(pair for pair in named if pair is not None))
            moment = Moment(epoch_ms(each.t), *key)
            found[key] = SeenEvent(moment, rules.identifiers(each.ids), each.strength, pairs)
    return list(found.values())


def seen_event(
    rules: Rules, stamp: Stamp, named: Iterable[Identifier], spec: SpecDocument | None = None
) -> SeenEvent:
    """The identifiers of a mapped event; its spec may say which of them are evidence, and how strong."""
    identifiers = rules.identifiers(named)
    moment = Moment(stamp.ordinal, stamp.source, stamp.event_id)
    if spec is None or spec.evidence is None:
        return SeenEvent(moment, identifiers, spec=None if spec is None else spec.ref)
    pairs = None if spec.evidence.links is None else linked(identifiers, spec.evidence.links)
    return SeenEvent(moment, identifiers, spec.evidence.strength, pairs, spec.ref)


def _pins(rules: Rules, pins: Iterable[PinDocument]) -> list[Pin]:
    pairs = ((_pair(rules, *each.pair), each) for each in pins)
    return [
        Pin(pair, Decision(each.decision), epoch_ms(each.t), each.who, each.why)
        for pair, each in pairs
        if pair is not None
    ]


def _pair(rules: Rules, one: Named, other: Named) -> Pair | None:
    """None where one of them is blocked, or both are the same."""
    found = rules.identifiers((one, other))
    return Pair.of(*found) if len(found) == 2 else None
