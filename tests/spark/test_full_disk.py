"""The disk of the embedded stores is full: the flow stops and says which file, and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, retail, until
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

SIZE = "16m"
FIRST, LATER = slice(0, 150), slice(150, 700)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip() or done.returncode}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Not a byte is left; gives the file that takes it all."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        for piece in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    stream.write(bytes(piece))
            except OSError:
                continue
    assert os.statvfs(disk).f_bavail == 0
    return ballast


def test_what_was_published_while_it_was_full_is_there_afterwards(
    tmp_path: Path, shop: Shop, disk: Path
) -> None:
    undisturbed = Installation(tmp_path / "undisturbed", shop)
    installation = Installation(tmp_path / "full", shop)
    state = disk / "state"
    text = installation.config.read_text()
    installation.config.write_text(f"directory = {json.dumps(str(state))}\n{text}")
    # Spark's own files are elsewhere: it is the stores that cannot write.
    state.mkdir()
    (tmp_path / "flows").mkdir()
    (state / "flows").symlink_to(tmp_path / "flows")
    for source in ("segment", "amplitude", "orders"):
        installation.publish(source, retail(source)[FIRST])
    process = installation.start()
    until(lambda: installation.batches() or process.poll() is not None, 240, "a micro-batch")
    ballast = fill(disk)
    for source in ("segment", "amplitude", "orders"):
        installation.publish(source, retail(source)[LATER])
    assert process.wait(240) == 1
    reported = (installation.folder / "flow.err").read_text()
    assert f"error: {state}/" in reported
    assert "the disk is full" in reported
    ballast.unlink()
    installation.run()
    for some in (FIRST, LATER):
        take(undisturbed, {source: retail(source)[some] for source in ("segment", "amplitude", "orders")})
    assert installation.profiles() == undisturbed.profiles()
    assert installation.dead_letters() == []
