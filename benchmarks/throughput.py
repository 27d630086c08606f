"""End to end events a second beside Spark's own rate for the same rows with no stage at all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import ProcessWatch
from benchmarks.product import RunningFlow, installed
from benchmarks.workload import clear, write_inbox

# The same files through Spark's text source and a Python worker that hands each Arrow batch back.
_CARRY = """
import json, os, sys, time
started = time.monotonic()
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.memory", "1g").config("spark.sql.files.maxPartitionBytes", "8m").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
ready = time.monotonic()
rows = spark.read.text(sys.argv[1].split(",")).mapInArrow(lambda batches: batches, "value string")
rows.write.format("noop").mode("overwrite").save()
print(json.dumps({"ready": ready - started, "carry": time.monotonic() - ready}))
"""


def measure(folder: Path, shops: int) -> dict[str, Any]:
    """Figures of one size of input: whole processes, and once Spark is up."""
    clear(folder)
    with installed(folder, "") as (config, settings):
        events = write_inbox(folder / "inbox", shops)
        flow = RunningFlow(config, "--until-done")
        with ProcessWatch(flow.pid) as watch:
            seconds = flow.wait()
        batches = [batch for _, batch in flow.batches if batch["events"]]
        assert sum(batch["events"] for batch in batches) == events
        dead = sum(sum(batch["dead_letters"].values()) for batch in batches)
        inbox = ",".join(str(path) for path in sorted((folder / "inbox").iterdir()))
        carried = subprocess.run(
            [sys.executable, "-c", _CARRY, inbox], check=True, capture_output=True, text=True
        )
        carry = json.loads(carried.stdout.strip().splitlines()[-1])
        first, last = flow.batches[0][0] - batches[0]["seconds"], flow.batches[-1][0]
        busy = last - first
        store = settings.directory / "profiles.db"
        return {
            "events": events,
            "profiles_written": sum(batch["written"] for batch in batches),
            "dead_letters": dead,
            "whole_process_seconds": round(seconds, 2),
            "whole_process_events_per_second": round(events / seconds),
            "streaming_seconds": round(busy, 2),
            "streaming_events_per_second": round(events / busy),
            "first_bar_events_per_second": 20_000,
            "goal_events_per_second": 81_000,
            "spark_carry_events_per_second": round(events / carry["carry"]),
            "share_of_spark_carry": round(carry["carry"] / busy, 3),
            "cpu_us_an_event": {
                kind: round(1e6 * used / events, 1) for kind, used in watch.cpu_seconds().items()
            },
            "peak_resident_mib": watch.peak_resident_bytes >> 20,
            "store_bytes_per_event": round(store.stat().st_size / events, 1),
            "measured_at": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
