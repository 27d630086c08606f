"""Several processes of idgraph as one: one log, one end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from idgraph.app.observation.json_logs import is_on, say

WAIT_SECONDS = 60.0
"""For the process that others begin with, on a machine that is busy."""
LOOK_SECONDS = 0.1
LAST_LINES_SECONDS = 1.0
"""Spark's processes may hold a dead flow's output open for longer."""
MOST_LINE_BYTES = 1 << 24
_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


class Part(NamedTuple):
    """One process. Others wait until it listens on `waited_for`, a URL. With `is_last` it ends after those that talk to it
    while they end."""

    name: str
    command: tuple[str, ...]
    waited_for: str | None = None
    is_last: bool = False


def supervise(parts: Sequence[Part]) -> int:
    """Run all until SIGINT, SIGTERM or SIGHUP, or until one of them ends; then all end. A second signal interrupts what they
    finish first, a third kills. Returns the exit code: of the one that ended first by itself, else 0, or 130 if interrupted."""
    return asyncio.run(_Supervisor(max(len(each.name) for each in parts)).run(parts))


def address(url: str) -> tuple[str, int]:
    """Host and port of a service."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


class _Supervisor:
    def __init__(self, width: int) -> None:
        self._width = width
        self._running: dict[Part, Process] = {}
        self._following: dict[Part, asyncio.Task[None]] = {}
        self._ending = asyncio.Event()
        self._signals = 0
        self._code = 0

    async def run(self, parts: Sequence[Part]) -> int:
        for each in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(each, self._note_signal)
        try:
            for part in parts:
                await self._start(part)
                if part.waited_for is not None:
                    await self._until_listening(part.waited_for)
                if self._ending.is_set():
                    break
            else:
                say(f"started {', '.join(each.name for each in parts)}; Ctrl-C ends them together")
            await self._ending.wait()
            for is_last in (False, True):
                await self._end([each for each in self._running if each.is_last is is_last])
            return self._code
        finally:
            for process in self._running.values():
                process.kill()

    async def _start(self, part: Part) -> None:
        # Pipes of our own: the end of a process with asyncio's is only known when nobody holds them any more, and Java writes
        # its archive of classes for half a minute after the first run of a flow.
        errors, to_errors = await _pipe()
        output, to_output = (None, None) if is_on() else await _pipe()
        try:
            process = self._running[part] = await asyncio.create_subprocess_exec(
                *part.command,
                # It ends with us.
                stdin=PIPE,
                # As JSON, a flow's micro-batches are among its messages.
                stdout=DEVNULL if to_output is None else to_output,
                stderr=to_errors,
                # A terminal's Ctrl-C is for us.
                process_group=0,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        finally:
            for each in (to_errors, to_output):
                if each is not None:
                    os.close(each)
        streams = [errors] if output is None else [output, errors]
        self._following[part] = asyncio.create_task(self._follow(part, process, streams))

    async def _until_listening(self, url: str) -> None:
        due = time.monotonic() + WAIT_SECONDS
        while not self._ending.is_set() and time.monotonic() < due:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(*address(url))
                writer.close()
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._running[part].terminate()
        await asyncio.gather(*(self._following[part] for part in parts))

    async def _follow(self, part: Part, process: Process, streams: list[asyncio.StreamReader]) -> None:
        readers = [asyncio.create_task(self._show(part.name, each)) for each in streams]
        code = await process.wait()
        await asyncio.wait(readers, timeout=LAST_LINES_SECONDS)
        for each in readers:
            each.cancel()
        del self._running[part]
        self._note_end(part.name, code)

    async def _show(self, name: str, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            shown = _shown(f"{name:<{self._width}}", line.decode(errors="replace").rstrip("\n"))
            # A terminal that is gone sends SIGHUP.
            with suppress(OSError):
                print(shown, file=sys.stderr, flush=True)

    def _note_signal(self) -> None:
        self._ending.set()
        self._signals += 1
        if self._signals == 1:
            say("stopping (again to interrupt what they finish first)")
            return
        self._code = self._code or 128 + signal.SIGINT
        for process in self._running.values():
            process.send_signal(signal.SIGINT if self._signals == 2 else signal.SIGKILL)

    def _note_end(self, name: str, code: int) -> None:
        if self._ending.is_set() and code in (0, -signal.SIGTERM, self._code):
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        others = "" if self._ending.is_set() else ", so the others end too; the reason is in its last lines"
        say(f"{name} {how}{others}", logging.ERROR if code else logging.WARNING)
        self._code = self._code or (1 if code < 0 else code)
        self._ending.set()


async def _pipe() -> tuple[asyncio.StreamReader, int]:
    """The reader of a pipe, and the descriptor to write to."""
    reading, writing = os.pipe()
    stream = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb")
    )
    return stream, writing


def _shown(name: str, line: str) -> str:
    if not is_on():
        return f"{name} | {line}"
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    plain = {"level": "INFO", "message": line}
    return json.dumps((fields if isinstance(fields, dict) else plain) | {"process": name.rstrip()})
