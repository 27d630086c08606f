"""`epoch_ms`: times in the formats and zones that sources write, as epoch milliseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.pointers import epoch_milliseconds, found, nearest

_UNITS = {"seconds": Decimal(1000), "milliseconds": Decimal(1), "microseconds": Decimal("0.001")}
_DIRECTIVES = frozenset("YymdBbHIMSfpzjaA%")
_LONGEST = 100  # characters of a time and of a format
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?")
_NO_FORMAT = "epoch_ms() expects a format as second argument, such as '%d.%m.%Y %H:%M'"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def epoch_ms(value: Any, style: Any = None, zone: Any = None) -> int | None:
    """Null for null. `style` is a unit or a format of `strptime`; None means RFC 3339 with an offset.
    `zone` is an IANA name or an offset, for times without one. Raises TransformError for anything else."""
    if value is None:
        return None
    if style is None:
        return _rfc3339(value)
    if type(style) is not str:
        raise TransformError("epoch_ms() expects text as its second argument")
    if style in _UNITS:
        return _counted(value, style)
    if type(value) is not str or len(value) > _LONGEST:
        raise TransformError(f"epoch_ms() expects text of at most {_LONGEST} characters for a format")
    try:
        read = datetime.strptime(value, _checked_format(style))
        if read.tzinfo is None:
            read = read.replace(tzinfo=_known_zone(zone))
        return (read - _EPOCH) // _MILLISECOND
    except SpecError:
        # Its message quotes what it found, which here may come from the event.
        raise TransformError("epoch_ms() got a format or a zone that it cannot read") from None
    except (ValueError, OverflowError):
        raise TransformError("epoch_ms() expects a time in the format that is given") from None


def check_constants(constants: Sequence[Any]) -> None:
    """Raises SpecError for a format or zone that no event can change; None stands for what an event says."""
    style = constants[1] if len(constants) > 1 else None
    zone = constants[2] if len(constants) > 2 else None
    if style is not None and type(style) is not str:
        raise SpecError(_NO_FORMAT)
    if style is not None and style not in _UNITS:
        has_offset = "%z" in _checked_format(style)
        if len(constants) < 3 and not has_offset:
            raise SpecError("epoch_ms() needs a zone, because the format has no offset (%z)")
    if zone is not None:
        _zone(zone)


def _rfc3339(value: Any) -> int:
    milliseconds: int | None = epoch_milliseconds(value) if type(value) is str else None
    if milliseconds is None:
        raise TransformError("epoch_ms() expects an RFC 3339 time with an offset")
    return milliseconds


def _counted(value: Any, unit: str) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TransformError(f"epoch_ms() expects a number of {unit}")
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if abs(exact) > 10**18:
        raise TransformError(f"epoch_ms() got a number of {unit} that is out of range")
    return int((exact * _UNITS[unit]).to_integral_value(rounding="ROUND_FLOOR"))


@lru_cache(maxsize=256)
def _checked_format(style: Any) -> str:
    if not isinstance(style, str) or not style or len(style) > _LONGEST:
        raise SpecError(_NO_FORMAT)
    directives = re.findall(r"%(.?)", style, re.DOTALL)
    unknown = [each for each in directives if each not in _DIRECTIVES or not each]
    if unknown or not directives:
        known = ", ".join(f"%{each}" for each in sorted(_DIRECTIVES))
        units = ", ".join(_UNITS)
        raise SpecError(
            f"epoch_ms() cannot read the format {found(style)}; it knows {known}, or one of {units}",
            hint=nearest(style, _UNITS),
        )
    if len(set(directives) - {"%"}) < len([each for each in directives if each != "%"]):
        raise SpecError(f"a directive stands twice in the format {found(style)}")
    return style


def _zone(zone: Any) -> tzinfo:
    if zone is None:
        raise SpecError("epoch_ms() needs a zone for a time without an offset")
    if isinstance(zone, str) and len(zone) <= _LONGEST and (known := _zone_of(zone)) is not None:
        return known
    raise SpecError(
        f"there is no time zone {found(zone)}; expected one like 'Europe/Berlin' or '+02:00'",
        hint=nearest(zone, _zones()) if isinstance(zone, str) else None,
    )


def _known_zone(zone: Any) -> tzinfo:
    """As `_zone`, for what an event says: no time is spent on a message that nobody may see."""
    known = _zone_of(zone) if isinstance(zone, str) and len(zone) <= _LONGEST else None
    if known is None:
        raise TransformError("epoch_ms() needs a zone that it knows, or a time with an offset")
    return known


@lru_cache(maxsize=256)
def _zone_of(zone: str) -> tzinfo | None:
    matched = _OFFSET.fullmatch(zone)
    if matched:
        away = timedelta(hours=int(matched[2]), minutes=int(matched[3]))
        if away < timedelta(hours=24):
            return timezone(-away if matched[1] == "-" else away)
    return ZoneInfo(zone) if zone in _zones() else None


@cache
def _zones() -> frozenset[str]:
    # It is read from hundreds of files.
    return frozenset(available_timezones())
