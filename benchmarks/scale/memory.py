"""Memory over a long run: `make bench ARGS="scale-memory --events 50000000 --folder /a/large/disk"`.

The same people again and again, in event after event of a later month, so that the store stops growing and only time
continues. Files are removed once they were taken, as an operator does.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib, resident_mib
from benchmarks.processes import ProcessWatch, Sample
from benchmarks.product import RunningFlow, installed
from benchmarks.workload import SOURCES, clear, events, renamed

SHOPS = 3
LINES = 10_000
BACKLOG = 600_000
"""Events that lie ready: enough for the next micro-batch."""
_MARGIN = 300_000
"""Files are removed so many events after they were taken."""
POINTS = 10
_BACK = 1 << 39
"""Milliseconds, 17 years: so that no month lies in the future."""
_LONG_MONTHS = tuple(
    f"{year}-{month}" for year in range(2001, 2026) for month in ("01", "03", "05", "07", "08", "10", "12")
)
"""None before a flow's `earliest_year`."""
LAST_MONTH = len(_LONG_MONTHS) - 1
"""The months after it are the same ones again."""


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Mebibytes by kind of process after each tenth of the events, and how they grew in the second half."""
    with installed(folder) as (config, _):
        flow = RunningFlow(config)
        feeder = _Feeder(folder / "inbox", flow, count)
        with ProcessWatch(flow.pid) as watch:
            feeder.start()
            curve = _curve(flow, watch, count)
            feeder.stop()
            flow.stop()
            cpu = watch.cpu_seconds()
    done = flow.events()
    clear(folder)
    return {
        **{f"after {events:,} events": resident_mib(sample) | _when(sample) for events, sample in curve},
        "growth_in_second_half_mib_a_million": _growth(curve),
        "events": done,
        "cpu_us_an_event": round(1e6 * sum(cpu.values()) / done, 1),
        "peak_mib": round(mib(watch.peak.total)),
    }


def _curve(flow: RunningFlow, watch: ProcessWatch, count: int) -> list[tuple[int, Sample]]:
    curve: list[tuple[int, Sample]] = []
    while len(curve) < POINTS:
        flow.check()
        if flow.events() >= count * (len(curve) + 1) / POINTS:
            curve.append((flow.events(), watch.latest))
            row = resident_mib(watch.latest) | _when(watch.latest)
            print(f"{flow.events():,} events", json.dumps(row), file=sys.stderr, flush=True)
        time.sleep(0.5)
    return curve


def _when(sample: Sample) -> dict[str, Any]:
    return {"total": round(mib(sample.total)), "minutes": round(sample.seconds / 60, 1)}


def _growth(curve: list[tuple[int, Sample]]) -> dict[str, float]:
    (some, middle), (all_of_them, end) = curve[len(curve) // 2 - 1], curve[-1]
    millions = max(all_of_them - some, 1) / 1e6
    return {
        kind: round(mib(end.resident[kind] - middle.resident.get(kind, 0)) / millions, 2)
        for kind in end.resident
    }


class _Feeder(threading.Thread):
    """Keeps a backlog in the inbox and removes what was taken."""

    def __init__(self, inbox: Path, flow: RunningFlow, count: int) -> None:
        super().__init__(daemon=True)
        self._inbox = inbox
        self._flow = flow
        self._count = count
        self._halt = threading.Event()

    def run(self) -> None:
        given = 0
        laid: deque[tuple[int, Path]] = deque()
        for number, (source, lines) in enumerate(_files()):
            while given - self._flow.events() > BACKLOG and not self._halt.wait(0.1):
                pass
            if self._halt.is_set() or given >= self._count + BACKLOG:
                return
            given += len(lines)
            laid.append((given, _publish(self._inbox / source, number, lines)))
            while laid and laid[0][0] < self._flow.events() - _MARGIN:
                laid.popleft()[1].unlink()

    def stop(self) -> None:
        self._halt.set()
        self.join()


def _publish(folder: Path, number: int, lines: list[bytes]) -> Path:
    hidden, file = folder / f".{number:08d}", folder / f"{number:08d}.jsonl"
    hidden.write_bytes(b"".join(lines))
    return hidden.rename(file)


def _files() -> Iterator[tuple[str, list[bytes]]]:
    """Lines of the files of all sources in turn, month after month, each event with a time and a name of its own."""
    template = [
        (source, [renamed(source, event, shop) for event in events(source)])
        for shop in range(1, SHOPS + 1)
        for source in SOURCES
    ]
    month = 0
    while True:
        for source, lines in template:
            for start in range(0, len(lines), LINES):
                yield source, [in_month(source, line, month) for line in lines[start : start + LINES]]
        month += 1


def in_month(source: str, line: bytes, month: int) -> bytes:
    """An event of March 2024 as another one, of a later month and with another name."""
    if source == "amplitude":
        before, rest = line.split(b'"time":', 1)
        moment = re.match(rb"\d+", rest)
        assert moment is not None
        later = int(moment[0]) - _BACK + month % len(_LONG_MONTHS) * 31 * 86_400_000
        line = b'%b"time":%d%b' % (before, later, rest[moment.end() :])
        return line.replace(b'"insert_id":"', b'"insert_id":"%d-' % month, 1)
    shown = _LONG_MONTHS[month % len(_LONG_MONTHS)].encode()
    name = b'"messageId":"' if source == "segment" else b'"order_id":"'
    return line.replace(b"2024-03", shown).replace(name, name + b"%d-" % month, 1)
