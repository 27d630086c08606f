"""The product as its users run it: processes of the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.workload import EXAMPLE, lay_out
from idgraph.app import metadata_access
from idgraph.app.settings.document import Settings, load
from tests.support.processes import free_port

PROGRAM = [sys.executable, "-m", "idgraph.app.cli"]


def command(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; raises when it fails."""
    done = subprocess.run([*PROGRAM, "-c", str(config), *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"idgraph {' '.join(words)} ended with exit code {done.returncode}: {done.stderr}")
    return done


@contextmanager
def installed(
    folder: Path,
    flow: str = "",
    attributes: Path = EXAMPLE / "attributes.json",
    keyring: Path | None = None,
) -> Iterator[tuple[Path, Settings]]:
    """A new installation with the shop's specs, its metadata service running. With the keyring of another one it
    gives the same names and the same sealed bytes for the same events."""
    config = lay_out(folder, free_port(), flow)
    if keyring is None:
        command(config, "keys", "init")
    else:
        own = load(config).keyring_file()
        own.parent.mkdir(parents=True, mode=0o700)
        own.write_bytes(keyring.read_bytes())
        own.chmod(0o600)
    service = subprocess.Popen([*PROGRAM, "-c", str(config), "serve", "metadata"], stderr=subprocess.DEVNULL)
    try:
        settings = load(config)
        _await_service(settings)
        command(config, "attributes", "apply", str(attributes))
        command(config, "specs", "apply", *map(str, sorted((EXAMPLE / "specs").glob("*.json"))))
        yield config, settings
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(30)


def _await_service(settings: Settings) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with metadata_access.metadata_client(settings, 1.0) as client:
                client.list_specs()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


class RunningFlow:
    """`idgraph run` in a process of its own, its micro-batch reports collected as they come."""

    def __init__(self, config: Path, *words: str, **environment: str) -> None:
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [*PROGRAM, "-c", str(config), "run", "--json", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.batches: list[tuple[float, dict[str, Any]]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.batches.append((time.monotonic() - self.started, json.loads(line)))

    def events(self) -> int:
        """Events of the micro-batches that are done."""
        return sum(batch["events"] for _, batch in self.batches)

    def check(self) -> None:
        """Raises RuntimeError when it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"idgraph run ended with exit code {self._process.returncode}")

    def wait(self) -> float:
        """Wait for its end; gives the seconds from start to end. Raises when it failed."""
        code = self._process.wait()
        self._reader.join(10)
        if code != 0:
            raise RuntimeError(f"idgraph run ended with exit code {code}")
        return time.monotonic() - self.started

    def stop(self) -> None:
        """Ask it to stop, as Ctrl-C does, and wait."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        return self._process.pid
