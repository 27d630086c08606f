"""CPU, memory and writing of a process and all below it, sampled from /proc (Linux)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Process(NamedTuple):
    parent: int
    kind: str
    cpu_seconds: float
    resident_bytes: int
    written_bytes: int


class Sample(NamedTuple):
    """Resident memory at one moment, in bytes by kind of process; pages that processes share count for each."""

    seconds: float
    resident: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.resident.values())


class ProcessWatch:
    """Samples every half second from its start to its end. The use of a process between its last sample and its end
    is missed. Kinds are `driver` (the root), `jvm`, `workers` and the `projection` of an embedded index. Use as a context manager."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._last: dict[int, _Process] = {}
        self._alive: set[int] = set()
        self._of_ended: dict[str, int] = {}
        """Written bytes of processes that have ended, by the kind of the one that waited for it."""
        self.peak = Sample(0.0, {})
        """The sample with the highest sum over all processes."""
        self.latest = Sample(0.0, {})
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_seconds(self) -> dict[str, float]:
        """By kind of process."""
        return {kind: round(seconds, 1) for kind, seconds in self._sums("cpu_seconds").items()}

    def largest(self, kind: str) -> int:
        """The number of the largest process of this kind at the last sample that had one."""
        found = {number: each for number, each in self._last.items() if each.kind == kind}
        return max(found, key=lambda number: found[number].resident_bytes)

    def written_bytes(self) -> dict[str, int]:
        """Bytes that processes had the disk write, by kind: 0 where the system does not report."""
        # The system adds those of a process that has ended to those of the one that waited for it.
        return {
            kind: max(0, int(count - self._of_ended.get(kind, 0)))
            for kind, count in self._sums("written_bytes").items()
        }

    def _sums(self, field: str) -> dict[str, float]:
        total: dict[str, float] = {}
        for process in list(self._last.values()):
            total[process.kind] = total.get(process.kind, 0.0) + getattr(process, field)
        return dict(sorted(total.items()))

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._sample()

    def _sample(self) -> None:
        alive = _below(self._root)
        ended = {
            number: each._replace(kind=self._last[number].kind)
            for number, each in alive.items()
            if number in self._last and self._last[number].kind == "projection"
        }
        for gone in (self._last[number] for number in self._alive - alive.keys()):
            if gone.parent in alive:
                kind = self._last[gone.parent].kind
                self._of_ended[kind] = self._of_ended.get(kind, 0) + gone.written_bytes
        self._alive = set(alive)
        # One that has ended has no command line any more.
        self._last |= alive | ended
        resident: dict[str, int] = {}
        for process in alive.values():
            resident[process.kind] = resident.get(process.kind, 0) + process.resident_bytes
        self.latest = Sample(time.monotonic() - self._started, resident)
        self.peak = max(self.peak, self.latest, key=lambda sample: sample.total)


def cpu_of(process: int) -> float:
    """CPU seconds that one process that is there has used so far."""
    return _processes()[process].cpu_seconds


def cpu_below(root: int) -> dict[str, float]:
    """CPU seconds that a process and all below it that are there have used so far, by kind as in `ProcessWatch`."""
    used: dict[str, float] = {}
    for process in _below(root).values():
        used[process.kind] = used.get(process.kind, 0.0) + process.cpu_seconds
    return used


def _below(root: int) -> dict[int, _Process]:
    running = _processes()
    below = {root}
    # Parents have lower numbers, or the next sample finds the rest.
    for number in sorted(running):
        if running[number].parent in below:
            below.add(number)
    found = {number: running[number] for number in below if number in running}
    if root in found:
        found[root] = found[root]._replace(kind="driver")
    return found


def _processes() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(") ")
            written = _written(folder)
        except OSError:
            continue
        fields = rest.split()
        kind = "jvm" if name.endswith("(java") else _kind_of_python(folder)
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        found[int(folder.name)] = _Process(int(fields[1]), kind, cpu, int(fields[21]) * _PAGE, written)
    return found


def _kind_of_python(folder: Path) -> str:
    try:
        return "projection" if b"idgraph.app.projecting" in (folder / "cmdline").read_bytes() else "workers"
    except OSError:
        return "workers"


def _written(folder: Path) -> int:
    try:
        counters = (folder / "io").read_text()
    except PermissionError:  # another user's
        return 0
    return next((int(line[13:]) for line in counters.splitlines() if line.startswith("write_bytes: ")), 0)
