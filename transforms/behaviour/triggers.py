"""Decisions of a trigger on a crossing: pure functions of the trigger, the crossing, what was sent before, and a moment."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from idgraph.model import canonical
from idgraph.model.behaviour import CalendarPeriod
from idgraph.model.durations import milliseconds
from idgraph.model.triggers import MessageLimit, Occurrence, QuietHours, TriggerDecision, TriggerDocument

Sent = Mapping[str, int]
"""By delivery id, the moment of the crossing. A person's deliveries are the union over her fragments."""


def decide(
    trigger: TriggerDocument, occurrence: Occurrence, sent: Sent, of_group: Sent, now_ms: int
) -> TriggerDecision:
    """Whether a crossing is reported. `sent` are the person's deliveries of this trigger, `of_group` those of all triggers of
    its group. Limits count by the moments of crossings, so that a replay at another moment decides the same."""
    id_ = delivery_id(trigger, occurrence)
    reason = occurrence.refused or _suppressed(trigger, occurrence, id_, sent, of_group, now_ms)
    if reason:
        return TriggerDecision(id_, "suppressed", reason, now_ms)
    due_ms = quiet_until(trigger.quiet, now_ms)
    return TriggerDecision(id_, "waiting" if due_ms == now_ms else "held", "", due_ms)


def with_limits_of_groups(triggers: Iterable[TriggerDocument]) -> list[TriggerDocument]:
    """The same triggers, in each group with the limits that any trigger of the group states."""
    known = list(triggers)
    limits: dict[str, dict[MessageLimit, None]] = defaultdict(dict)
    for each in known:
        if each.group:
            limits[each.group.name] |= dict.fromkeys(each.group.limits)
    return [
        each.model_copy(
            update={"group": each.group.model_copy(update={"limits": tuple(limits[each.group.name])})}
        )
        if each.group
        else each
        for each in known
    ]


def delivery_id(trigger: TriggerDocument, occurrence: Occurrence) -> str:
    """The same for the same crossing, by whatever replay."""
    buckets = [_bucket(each, occurrence.at_ms) for each in trigger.limits]
    parts = [trigger.name, trigger.version, occurrence.profile, buckets, occurrence.number]
    return hashlib.sha256(canonical.encode(parts)).hexdigest()[:32]


def is_expired(trigger: TriggerDocument, since_ms: int, now_ms: int) -> bool:
    """Whether something of this moment is too old to be reported."""
    return trigger.expires is not None and now_ms - since_ms > milliseconds(trigger.expires)


def quiet_until(quiet: QuietHours | None, now_ms: int) -> int:
    """The end of the quiet hours that `now_ms` is in; else `now_ms`."""
    if quiet is None:
        return now_ms
    zone = ZoneInfo(quiet.time_zone)
    local = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone)
    begin, end = time.fromisoformat(quiet.from_), time.fromisoformat(quiet.to)
    for day in (local.date() - timedelta(days=1), local.date()):
        begins = _moment(datetime.combine(day, begin, zone))
        ends = _moment(datetime.combine(day + timedelta(days=begin > end), end, zone))
        if begins <= now_ms < ends:
            return ends
    return now_ms


def _suppressed(
    trigger: TriggerDocument, occurrence: Occurrence, id_: str, sent: Sent, of_group: Sent, now_ms: int
) -> str:
    if is_expired(trigger, occurrence.since_ms, now_ms):
        return "expired"
    if reached := _reached(trigger.limits, occurrence.at_ms, id_, sent):
        return f"limit: {reached}"
    group = trigger.group
    reached = _reached(group.limits, occurrence.at_ms, id_, of_group) if group else ""
    return f"limit of group {group.name}: {reached}" if group and reached else ""


def _reached(limits: Iterable[MessageLimit], at_ms: int, id_: str, sent: Sent) -> str:
    moments = [moment for other, moment in sent.items() if other != id_]
    for each in limits:
        if sum(_is_counted(each, moment, at_ms) for moment in moments) >= each.most:
            return f"{each.most} per {each.per or each.calendar}"
    return ""


def _is_counted(limit: MessageLimit, moment: int, at_ms: int) -> bool:
    if limit.per is not None:
        return abs(at_ms - moment) < milliseconds(limit.per)
    return _bucket(limit, moment) == _bucket(limit, at_ms)


def _bucket(limit: MessageLimit, at_ms: int) -> int | None:
    period = limit.period()
    return None if period is None else _begins(period)(at_ms)


@lru_cache(maxsize=1000)
def _begins(period: CalendarPeriod) -> Callable[[int], int | None]:
    # Late: windows bring the compiler of conditions.
    from transforms.behaviour.windows import span

    return span(period).begin


def _moment(local: datetime) -> int:
    return round(local.timestamp() * 1000)
