"""End to end events a second beside Spark's own rate for the same rows with no stage at all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib, run_until_done, stored
from benchmarks.product import installed
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
        run = run_until_done(config, write_inbox(folder / "inbox", shops))
        carried = _carry_seconds(folder / "inbox")
        return {
            "events": run.events,
            "profiles_written": run.fragments_written,
            "dead_letters": run.dead_letters,
            "whole_process_seconds": round(run.whole_seconds, 2),
            "whole_process_events_per_second": round(run.events / run.whole_seconds),
            "streaming_seconds": round(run.streaming_seconds, 2),
            "streaming_events_per_second": round(run.events / run.streaming_seconds),
            "searchable_seconds": round(run.searchable_seconds, 2),
            "searchable_events_per_second": round(run.events / run.searchable_seconds),
            "first_bar_events_per_second": 40_000,
            "goal_events_per_second": 81_000,
            "spark_carry_events_per_second": round(run.events / carried),
            "share_of_spark_carry": round(carried / run.streaming_seconds, 3),
            "cpu_us_an_event": run.cpu_us_an_event,
            "written_bytes_an_event": run.written_bytes_an_event,
            "peak_resident_mib": round(mib(run.peak.total)),
            "store_bytes_per_event": round(stored(settings)["profiles"] / run.events, 1),
            "measured_at": time.strftime("%Y-%m-%d %H:%M:%S"),
        }


def _carry_seconds(inbox: Path) -> float:
    folders = ",".join(str(path) for path in sorted(inbox.iterdir()))
    carried = subprocess.run(
        [sys.executable, "-c", _CARRY, folders], check=True, capture_output=True, text=True
    )
    return float(json.loads(carried.stdout.strip().splitlines()[-1])["carry"])
