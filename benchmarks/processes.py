"""CPU and memory of a process and all below it, sampled from /proc (Linux)."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Process(NamedTuple):
    parent: int
    group: str
    cpu_seconds: float
    resident_bytes: int


class ProcessWatch:
    """Samples every half second from its start to its end. What a process used between its last sample and its end
    is missed. Use as a context manager."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._cpu: dict[int, tuple[str, float]] = {}
        self.peak_resident_bytes = 0
        """Highest sum over all processes; pages that they share count for each."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_seconds(self) -> dict[str, float]:
        """By kind of process: `driver` (the root), `jvm`, `workers`."""
        total: dict[str, float] = {}
        for kind, seconds in self._cpu.values():
            total[kind] = total.get(kind, 0.0) + seconds
        return {kind: round(seconds, 1) for kind, seconds in sorted(total.items())}

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._sample()

    def _sample(self) -> None:
        running = _processes()
        below = {self._root}
        # Parents have lower numbers, or the loop finds the rest the next time.
        for number in sorted(running):
            if running[number].parent in below:
                below.add(number)
        alive = [(number, running[number]) for number in below if number in running]
        for number, process in alive:
            kind = "driver" if number == self._root else process.group
            self._cpu[number] = kind, process.cpu_seconds
        resident = sum(process.resident_bytes for _, process in alive)
        self.peak_resident_bytes = max(self.peak_resident_bytes, resident)


def _processes() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(") ")
        except OSError:
            continue
        fields = rest.split()
        group = "jvm" if name.endswith("(java") else "workers"
        found[int(folder.name)] = _Process(
            int(fields[1]), group, (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE
        )
    return found
