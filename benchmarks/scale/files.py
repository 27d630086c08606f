"""The cost of a micro-batch as the number of files that the flow ever took grows: Spark remembers each one's name.

At 20 small files a second a million are fourteen hours. They are written into the checkpoint as Spark itself writes
them, since only their names count.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib
from benchmarks.latency import marked, percentiles, until
from benchmarks.processes import ProcessWatch
from benchmarks.product import RunningFlow, installed
from benchmarks.workload import clear
from idgraph.app.publish import publish_lines
from idgraph.app.settings.document import Settings

SECONDS = 20.0
FILES_PER_SECOND = 20
START_SECONDS = 600
_FIRST_COMPACTED = "9.compact"
"""Spark writes what it remembers again with each tenth micro-batch, from this one on."""


def measure(folder: Path, files: int) -> dict[str, Any]:
    """With none, a tenth of them and so many files: CPU of the JVM and gaps between micro-batches, at 20 files a second of one event each."""
    clear(folder)
    with installed(folder) as (config, settings):
        flow = RunningFlow(config)
        log = settings.flow_state() / "checkpoint" / "sources" / "0"
        until(lambda: _published(settings) and (log / _FIRST_COMPACTED).exists(), START_SECONDS)
        flow.stop()
        figures = {}
        known = 0
        for size in (0, files // 10, files):
            compacted = max(log.glob("*.compact"), key=lambda file: int(file.stem))
            _remember(compacted, settings.file_source("segment").path, known, size)
            known = size
            figures[f"{size} files"] = _measured(config, settings)
            figures[f"{size} files"]["log_mib"] = mib(max(file.stat().st_size for file in log.iterdir()))
    return figures


def _published(settings: Settings) -> bool:
    publish_lines(settings.file_source("segment"), [marked(f"p{time.time_ns()}")])
    time.sleep(1 / FILES_PER_SECOND)
    return True


def _remember(compacted: Path, inbox: Path, first: int, end: int) -> None:
    """Add files to those that Spark took."""
    at = int(time.time() * 1000)
    with compacted.open("a") as stream:
        for number in range(first, end):
            entry = {"path": f"file://{inbox}/taken-{number:012d}.jsonl", "timestamp": at, "batchId": 0}
            stream.write("\n" + json.dumps(entry, separators=(",", ":")))
    # Hadoop's own checksum is of what stood there before.
    compacted.with_name(f".{compacted.name}.crc").unlink(missing_ok=True)


def _heap_bytes(process: int) -> int | None:
    """Bytes of the JVM's live objects; None where the JDK's `jcmd` cannot determine."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return None
    for command in ("GC.run", "GC.heap_info"):
        output = subprocess.run([jcmd, str(process), command], check=False, capture_output=True, text=True)
        if output.returncode != 0:
            return None
    return 1024 * sum(int(used) for used in re.findall(r"generation .* used (\d+)K", output.stdout))


def _measured(config: Path, settings: Settings) -> dict[str, Any]:
    flow = RunningFlow(config)
    try:
        with ProcessWatch(flow.pid) as watch:
            until(lambda: _published(settings) and len(flow.batches) >= 3, START_SECONDS)
            before, begin = watch.cpu_seconds()["jvm"], len(flow.batches)
            until_time = time.monotonic() + SECONDS
            until(lambda: _published(settings) and time.monotonic() > until_time, 2 * SECONDS)
            moments = [at for at, _ in flow.batches[begin:]]
            used = watch.cpu_seconds()["jvm"] - before
            resident = watch.latest.resident["jvm"]
            heap = _heap_bytes(watch.largest("jvm"))
    finally:
        flow.stop()
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    return {
        "jvm_cpu_ms_a_micro_batch": round(1e3 * used / max(1, len(moments)), 1),
        "seconds_between_micro_batches": percentiles(gaps or [SECONDS]),
        "jvm_mib": round(mib(resident)),
        "heap_after_collection_mib": heap and round(mib(heap), 1),
    }
