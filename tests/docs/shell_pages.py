"""Pages whose shell blocks are run, and whose output is compared with what the page says."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
PORT = "8410"
VARYING = "…"


class Step(NamedTuple):
    """A shell block, and what stands under it."""

    commands: str
    output: str


def steps(page: str) -> list[Step]:
    """A page's shell blocks, each with the `text` block that follows it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Step(content, following[1] if following[0] == "text" else "")
        for (kind, content), following in zip(blocks, [*blocks[1:], ("", "")], strict=True)
        if kind == "sh"
    ]


def matches(expected: str, actual: str) -> bool:
    """Whether an output is the documented one; `…` stands for anything within a line, and columns may be
    wider."""
    wanted = [re.sub(" {2,}", "  ", line.rstrip()) for line in expected.splitlines()]
    given = [re.sub(" {2,}", "  ", line.rstrip()) for line in actual.splitlines()]
    return len(wanted) == len(given) and all(
        re.fullmatch(".*".join(re.escape(part) for part in line.split(VARYING)), other)
        for line, other in zip(wanted, given, strict=True)
    )


def run_page(page: str, folder: Path, seconds: float = 280) -> None:
    """Run all blocks of a page in one shell, in a folder; fails where one says something else."""
    documented = steps(page)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    # One shell runs all blocks, each into files of its own; it dies at the first command that fails.
    script = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "".join(
        f"{{\n{step.commands.replace(PORT, port)}}} > out.{number} 2> err.{number}\n"
        for number, step in enumerate(documented)
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IDGRAPH_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=False, timeout=seconds)
    for number, step in enumerate(documented):
        said = "".join(
            file.read_text(encoding="utf-8")
            for file in (folder / f"out.{number}", folder / f"err.{number}")
            if file.exists()
        )
        assert matches(step.output, said), f"{step.commands}\nsays\n{said}\nand not\n{step.output}"
    assert done.returncode == 0
