"""The projection of an embedded index in a process of its own: the driver's interpreter is the stream's alone.

The driver's thread asks, the process answers, one request at a time. A request is a name, its arguments and, where it
changed, the snapshot. The process ends with its connection, so that it outlives no driver for longer than a sweep.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexRules
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.projection.parts import Projected
from idgraph.projection.projection import Projection
from idgraph.repeating import message_of
from transforms.schema.diff import AttributeTree

END_SECONDS = 5.0
"""Until a process that is asked to end is killed: every write is safe to break off."""


class ProjectionProcess:
    """Sweeps as `Projection` does, but elsewhere. A process that died is started again by the next call. Not safe for several
    threads, except `close`."""

    def __init__(self, module: str, settings: str, newest: Callable[[], PinnedSnapshot]) -> None:
        """`module` is run with the number of a connection, which gives it `settings` first; then it serves."""
        self._module = module
        self._settings = settings
        self._newest = newest
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._sent = ""
        self._calling = threading.Lock()

    @contextmanager
    def many(self) -> Iterator[Callable[[], bool]]:
        """As `Projection.many`."""
        self._call("enter")
        entered = self._running
        try:
            yield lambda: bool(self._call("is_wanted"))
        finally:
            # Another process has not entered.
            if self._running is entered:
                self._call("leave")

    def sweep(self, seconds: float) -> Projected:
        """As `Projection.sweep`, under the newest snapshot of now."""
        swept: Projected = self._call("sweep", seconds)
        return swept

    def waiting(self, limit: int) -> int:
        """As `Projection.waiting`."""
        return int(self._call("waiting", limit))

    def close(self) -> None:
        """End the process. A call that takes longer than its caller waits is broken off."""
        running, self._running = self._running, None
        if running is None:
            return
        process, connection = running
        if self._calling.acquire(timeout=0):
            connection.close()
            self._calling.release()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        process.kill()
        process.wait()

    def _call(self, name: str, *arguments: object) -> Any:
        with self._calling:
            process, connection = self._running or self._start()
            newest = self._newest()
            snapshot = None if newest.etag == self._sent else newest.snapshot.model_dump_json()
            try:
                connection.send((name, arguments, snapshot))
                self._sent = newest.etag
                while (answer := connection.recv())[0] == "log":
                    _, logger, level, text = answer
                    logging.getLogger(logger).log(level, "%s", text)
            except (EOFError, OSError):
                self._running = None
                connection.close()
                raise ProfileIndexError(
                    f"the projection's process ended with code {process.wait()}, most often for want of memory"
                ) from None
        outcome, value = answer
        if outcome == "failed":
            raise ProfileIndexError(value)
        return value

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = Pipe()
        # In a session of its own: Ctrl-C reaches the driver alone, which projects the rest.
        process = subprocess.Popen(  # noqa: S603 - a module of ours
            [sys.executable, "-P", "-m", self._module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        ours.send(self._settings)
        self._sent = ""
        self._running = process, ours
        return self._running


def serve(connection: Connection, projection: Callable[[Callable[[], IndexRules]], Projection]) -> None:
    """Answer until the other end closes. `projection` makes one by rules."""
    rules: list[IndexRules] = []
    served = projection(lambda: rules[-1])
    entered = ExitStack()
    requests: dict[str, Callable[..., object]] = {
        "leave": entered.close,
        "sweep": served.sweep,
        "waiting": served.waiting,
    }

    def enter() -> None:
        requests["is_wanted"] = entered.enter_context(served.many())

    requests["enter"] = enter
    logging.basicConfig(handlers=[_Sent(connection)], level=logging.INFO, force=True)
    with entered:
        while True:
            try:
                name, arguments, snapshot = connection.recv()
            except EOFError:
                return
            try:
                if snapshot is not None:
                    rules[:] = [AttributeTree(MetadataSnapshot.model_validate_json(snapshot)).index_rules]
                answer = "done", requests[name](*arguments)
            except Exception as error:
                answer = "failed", message_of(error)
            connection.send(answer)


class _Sent(logging.Handler):
    """Sends what is logged to the driver, before the answer."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.send(("log", record.name, record.levelno, record.getMessage()))
