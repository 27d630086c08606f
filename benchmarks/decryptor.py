"""Decrypting records by a service: records a second by capacity, beside what capacity and service allow.

The service takes half a second for a record and works at 8 at once: 16 records a second are the most that it gives.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from idgraph.app.adapters.inputs import open_decryptor
from idgraph.model.events import RawRecord
from idgraph.model.sources import DecryptorConfig, FileSource
from ingestion.stages.decrypt import Decryption, Decryptors

SECONDS, AT_ONCE = 0.5, 8
CAPACITIES = (1, 2, 4, 8, 16, 32)
FOR_SECONDS = 5.0
RECORD = b'{"user": "u1", "page": "/a/b", "note": "%s"}' % (b"x" * 300)


def measure() -> dict[str, Any]:
    """Figures by capacity."""
    with _service() as url:
        return {f"capacity {capacity}": _measured(url, capacity) for capacity in CAPACITIES}


def _measured(url: str, capacity: int) -> dict[str, float]:
    config = DecryptorConfig(url=url, capacity=capacity)
    source = FileSource(name="web", path=Path("web"), decryptor=config)
    allowed = min(capacity / SECONDS, AT_ONCE / SECONDS)
    count = round(allowed * FOR_SECONDS)
    given = [RawRecord("web", f"file:web/x#{number}", RECORD) for number in range(count)]
    with closing(Decryptors(lambda config: open_decryptor(1 << 20, config))) as decryptors:
        decryption = Decryption({"web": source}, decryptors)
        # The connections are made before the clock runs.
        list(decryption.run(given[:capacity]))
        cpu, started = time.process_time(), time.perf_counter()
        got = sum(1 for _ in decryption.run(given))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {
        "records_per_second": round(got / seconds),
        "allowed_by_capacity_and_service": round(allowed),
        "share": round(got / seconds / allowed, 2),
        "cpu_ms_a_record": round(cpu / got * 1000, 2),
    }


@contextmanager
def _service() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.decryption_service", str(SECONDS), str(AT_ONCE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/decrypt"
        finally:
            process.terminate()
