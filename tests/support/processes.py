"""Java servers as child processes: they start, become ready, and end with the process that started them."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from idgraph.app.java import JarSet, jars, require_java
from idgraph.model.errors import ConfigError, IdgraphError

START_SECONDS = 120
STOP_SECONDS = 20
_PORTS = 11_000, 32_000


class ServerUnavailableError(IdgraphError):
    """A server for tests or development is not available on this machine. The message says why."""


# Reads from a pipe that nobody writes to, which ends with whoever holds the other end of it.
_LEASH = 'read _; kill "$1"'


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    log: Path,
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    where: str = "its port",
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that lives as long as the context, and no longer than this process, however that ends. `log` takes
    what it says.

    Raises ServerUnavailableError with the end of the log when it ends, or is not ready in time; and when another
    program answers in its place.
    """
    if is_ready():
        raise ServerUnavailableError(f"{name} cannot listen on {where}: another program does already")
    with log.open("ab") as output:
        begin = output.tell()
        # A session of its own: Ctrl-C is for who started it, who then stops it in order.
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    with _leash(server):
        try:
            _await(name, server, log, begin, is_ready)
            yield server
        finally:
            stop(server)


def listening(
    name: str, command: Sequence[str], log: Path, port: int, environment: Mapping[str, str] | None = None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """`running`, of a server that is ready when it listens on this port of loopback."""
    return running(name, command, log, lambda: listens(port), environment, f"port {port}")


def stop(server: subprocess.Popen[bytes]) -> None:
    """End it in order, or if it does not end in time, at once."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def free_port() -> int:
    """A TCP port of loopback that nobody listens on right now. Not one of those that the system gives to connections: a server
    that begins, or comes back, minutes later found its port taken by one of them."""
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listens(port: int) -> bool:
    """Whether somebody listens on this port of loopback."""
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _leash(server: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the server when this process is killed, which can stop nothing any more."""
    leash = subprocess.Popen(
        ["/bin/sh", "-c", _LEASH, "leash", str(server.pid)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        # Before its end of the pipe is closed: the server's number may be another process's by now.
        leash.kill()
        leash.communicate()


def _await(
    name: str, server: subprocess.Popen[bytes], log: Path, begin: int, is_ready: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if server.poll() is not None or time.monotonic() > deadline:
            said = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()[-3:]
            raise ServerUnavailableError(f"{name} did not start; it said: {' / '.join(said) or 'nothing'}")
        time.sleep(0.05)


def java_and_jars(*wanted: JarSet) -> tuple[str, list[Path]]:
    """The program `java`, and the folder of each set. Raises ServerUnavailableError with what to do about it."""
    try:
        return require_java(), [jars(each) for each in wanted]
    except ConfigError as error:
        raise ServerUnavailableError(str(error)) from None
