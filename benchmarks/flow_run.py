"""One whole run of `idgraph run --until-done` over what lies in the inbox, and what it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import ProcessWatch, Sample
from benchmarks.product import RunningFlow
from idgraph.app.settings.document import Settings


class FlowRun(NamedTuple):
    """Seconds are wall time: of the whole process; from the first micro-batch to the last one's end; from there to the end
    of the process, when all is searchable and Spark has ended. CPU seconds and `written_bytes` are by kind of process; the latter are what the disk was
    given, logs and temporary files included."""

    events: int
    fragments_written: int
    dead_letters: int
    sealed: int
    whole_seconds: float
    streaming_seconds: float
    searchable_seconds: float
    cpu_seconds: dict[str, float]
    peak: Sample
    written_bytes: dict[str, int]

    @property
    def cpu_us_an_event(self) -> dict[str, float]:
        return {kind: round(1e6 * used / self.events, 1) for kind, used in self.cpu_seconds.items()}

    @property
    def written_bytes_an_event(self) -> dict[str, int]:
        of_kinds = {kind: round(count / self.events) for kind, count in self.written_bytes.items()}
        return {"all": round(sum(self.written_bytes.values()) / self.events), **of_kinds}

    @property
    def cpu_us_an_event_all(self) -> float:
        return round(1e6 * sum(self.cpu_seconds.values()) / self.events, 1)


def run_until_done(config: Path, events: int) -> FlowRun:
    """Raises RuntimeError when the flow failed or did not take exactly so many events."""
    flow = RunningFlow(config, "--until-done")
    with ProcessWatch(flow.pid) as watch:
        seconds = flow.wait()
    batches = [batch for _, batch in flow.batches if batch["events"]]
    taken = sum(batch["events"] for batch in batches)
    if taken != events:
        raise RuntimeError(f"the flow took {taken} of {events} events")
    return FlowRun(
        events=events,
        fragments_written=sum(batch["written"] for batch in batches),
        dead_letters=sum(sum(batch["dead_letters"].values()) for batch in batches),
        sealed=sum(batch["protected"] for batch in batches),
        whole_seconds=seconds,
        streaming_seconds=flow.batches[-1][0] - (flow.batches[0][0] - batches[0]["seconds"]),
        searchable_seconds=seconds - (flow.batches[0][0] - batches[0]["seconds"]),
        cpu_seconds=watch.cpu_seconds(),
        peak=watch.peak,
        written_bytes=watch.written_bytes(),
    )


def stored(settings: Settings) -> dict[str, int]:
    """Bytes of what the flow keeps, by file; without their logs, which are emptied again and again."""
    return {path.stem: path.stat().st_size for path in sorted(settings.directory.glob("*.db"))}


def mib(count: float) -> float:
    """Bytes as mebibytes."""
    return round(count / (1 << 20), 1)


def resident_mib(sample: Sample) -> dict[str, Any]:
    """A sample's bytes by kind of process, as mebibytes."""
    return {kind: round(mib(count)) for kind, count in sorted(sample.resident.items())}
