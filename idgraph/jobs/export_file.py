"""The export as a job, and its file: written whole or not at all, readable by its owner only."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from idgraph.files import sync_folder
from idgraph.jobs.job import Job, Plan, Run
from idgraph.model.errors import ConfigError
from idgraph.model.jobs import JobKind, Point

PAGE = 1000
"""Profiles after which progress is counted."""

_MOST_LINKS = 40
"""As Linux has it."""

_EXPORT = b'{"attributes":'
"""How each line of an export begins: its keys are sorted."""

_PART = re.compile(r"\.[0-9a-f]+\.part$")


class Export(Job):
    """All profiles as lines. It cannot resume: a file is written whole or not at all."""

    kind = JobKind.EXPORT

    def __init__(self, profiles: int, output: Path | None, options: Mapping[str, bool]) -> None:
        self.target = f"standard output of {os.getpid()}" if output is None else str(output.absolute())
        self.what = {"output": self.target, **options}
        self._profiles = profiles

    def plan(self, _point: Point) -> Plan:
        return Plan("the export", self._profiles)

    @staticmethod
    def counted(run: Run, lines: Iterable[bytes], show: Callable[[Run], None]) -> Iterator[bytes]:
        """The lines, counted page by page. Raises JobStoppedError when the job must end."""
        for line in lines:
            yield line
            run.progress.done += 1
            if run.progress.done % PAGE == 0:
                show(run)
                run.page({})


def require_place(path: Path) -> None:
    """Raises ConfigError where no new file can be written."""
    if path.exists():
        raise ConfigError(f"{path}: is there already, and is not replaced")
    try:
        with _part(path) as (part, _):
            part.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def require_export(path: Path) -> None:
    """Raises ConfigError where a file stands that is no export, as a keyring or a database: to write one would replace it."""
    try:
        if not path.is_file() or _is_own_output(path):
            return
        with path.open("rb") as stream:
            beginning = stream.read(len(_EXPORT))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if beginning not in (b"", _EXPORT):
        raise ConfigError(
            f"{path}: holds something else than an export, and is not replaced; remove it first"
        )


def write_export(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file of profiles, whole or not at all, readable by its owner only; durable when it returns. What a link
    names is replaced, and the link stays; what is no file, as a pipe, a device or the process's own output, is written
    into. Raises ConfigError, and BrokenPipeError where nobody reads a pipe any more."""
    try:
        if _is_own_output(path) or (path.exists() and not path.is_file()):
            # Behind what is there: the output of a process may be a file that held something before.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as stream:
                stream.writelines(lines)
        else:
            _write_whole(_named_by(path), lines)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _is_own_output(path: Path) -> bool:
    """Whether a path is or links to one of the descriptors of a process, as /dev/stdout does."""
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.parent)) / path.name
        if path.is_relative_to("/proc") or path.parent == Path("/dev/fd"):
            return True
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return False


def _named_by(path: Path) -> Path:
    """What a chain of links names. Raises OSError where it names itself."""
    file = Path(os.path.realpath(path))
    if file.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return file


def _write_whole(file: Path, lines: Iterable[bytes]) -> None:
    _remove_left(file)
    with _part(file) as (part, descriptor):
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as stream:
                stream.writelines(lines)
            os.fsync(descriptor)
            part.replace(file)
            sync_folder(file.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def _part(path: Path) -> Iterator[tuple[Path, int]]:
    """Where a file is while it is not whole, and its descriptor, locked: no other has the name, and who finds it
    unlocked knows that nobody writes it any more."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # One that was found before it was locked is gone.
            if os.fstat(descriptor).st_nlink:
                yield part, descriptor
                return
        finally:
            os.close(descriptor)


def _remove_left(file: Path) -> None:
    """What killed exports to the same file left, whole profiles among it."""
    for part in file.parent.glob(f".{glob.escape(file.name)}.*.part"):
        if not _PART.search(part.name):
            continue
        with suppress(OSError):
            descriptor = os.open(part, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
            finally:
                os.close(descriptor)
