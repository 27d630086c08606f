"""The servers of the production shape in one folder, and a flow beside them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from idgraph.app import metadata_access
from idgraph.app.settings.document import Settings
from tests.installation import PROGRAM, RUN_SECONDS, Shop
from tests.support.machine import MachineShape

STOP_SECONDS = 240


class ProductionShape:
    """A flow and commands on servers that have started."""

    def __init__(self, machine: MachineShape) -> None:
        self.config = machine.config
        self.folder = machine.config.parent
        self.settings: Settings = machine.settings
        self.output = self.folder / "flow.out"
        self.errors = self.folder / "flow.err"

    def start(self) -> subprocess.Popen[bytes]:
        """The flow, with empty reports."""
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            return subprocess.Popen(
                [*PROGRAM, "-c", str(self.config), "run", "--json"],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )

    def shop(self) -> Shop:
        """Its service and its keys, for other installations."""
        settings = self.settings
        return Shop(settings.metadata.url, metadata_access.metadata_token(settings), settings.keyring_file())

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
