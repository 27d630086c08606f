"""`idgraph dev up` as its users run it: one command, a folder, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from idgraph.app import wiring
from idgraph.app.settings.document import Settings, load
from tests.installation import PROGRAM, RUN_SECONDS, Shop, until

START_SECONDS = 240


class ProductionShape:
    """All servers and the flow in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "idgraph.toml"
        self.output = folder.with_name(f"{folder.name}.out")
        self.errors = folder.with_name(f"{folder.name}.err")

    def start(self, wait: bool = True) -> subprocess.Popen[bytes]:
        """`idgraph dev up`; until it says how to publish, unless reported not to wait."""
        self.output.write_bytes(b"")
        self.errors.write_bytes(b"")
        with self.output.open("ab") as out, self.errors.open("ab") as err:
            process = subprocess.Popen(
                [*PROGRAM, "dev", "up", "--json", "--directory", str(self.folder)],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )
        if wait:
            until(lambda: b"starting Spark" in self.said() or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, self.said()
        return process

    def said(self) -> bytes:
        """What it wrote for people."""
        return self.errors.read_bytes()

    def settings(self) -> Settings:
        """What it made for itself."""
        return load(self.config)

    def shop(self) -> Shop:
        """Its service and its keys, for other installations."""
        settings = self.settings()
        return Shop(settings.metadata.url, wiring.metadata_token(settings), settings.keyring_file())

    def command(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
        """A command beside it; asserts its exit code."""
        done = subprocess.run(
            [*PROGRAM, "-c", str(self.config), *words], check=False, capture_output=True, timeout=RUN_SECONDS
        )
        assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-4000:])
        return done

    def taken(self) -> int:
        """Events that the flow has done since it was started."""
        lines = self.output.read_bytes().splitlines(keepends=True)
        batches: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return sum(batch["events"] for batch in batches)

    def processes(self) -> list[str]:
        """Command lines of processes that have to do with the folder, of whatever session or parent."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(self.folder) in line:
                found.append(line)
        return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of it alone."""
    process.kill()
    process.wait()


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C; gives the exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(START_SECONDS)


def alive(pids: list[int]) -> list[int]:
    """Those of these processes that are still there, and not only in the list until somebody asks how they ended."""
    return [pid for pid in pids if _state(pid) not in (None, "Z")]


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return None
