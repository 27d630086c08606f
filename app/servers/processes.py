"""Java servers as child processes: started, waited for, and stopped with whoever started them."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from model.errors import ServerUnavailableError

START_SECONDS = 120
STOP_SECONDS = 20


@contextmanager
def running(
    name: str, command: Sequence[str], log: Path, is_ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that lives as long as the context. `log` takes what it says.

    Raises ServerUnavailableError with the end of the log when it ends, or is not ready in time.
    """
    with log.open("ab") as output:
        # A session of its own: Ctrl-C is for who started it, who then stops it in order.
        server = subprocess.Popen(  # noqa: S603 - our own words
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _await(name, server, log, is_ready)
        yield server
    finally:
        stop(server)


def stop(server: subprocess.Popen[bytes]) -> None:
    """End it in order, or if it does not end in time, at once."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def free_port() -> int:
    """A TCP port of loopback that nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody listens on this port of loopback."""
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _await(name: str, server: subprocess.Popen[bytes], log: Path, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if server.poll() is not None or time.monotonic() > deadline:
            said = " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
            raise ServerUnavailableError(f"{name} did not start; it said: {said or 'nothing'}")
        time.sleep(0.05)
