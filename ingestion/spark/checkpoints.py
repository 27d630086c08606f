"""A flow's checkpoint: what Spark wrote of which files or offsets were taken, and repairing it after a power cut.

Spark renames its files into place without flushing them, so a power cut can leave files that are empty or end too
early, at which Spark refuses to start. What a damaged file reported is reported again: batches are retried, which
changes nothing of the profiles.
"""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path
from zlib import crc32

from idgraph.files import write_atomically
from idgraph.model.errors import ConfigError

log = logging.getLogger(__name__)

_VERSION = b"v1"
_BEGINNING = b"\0v1"
"""Of the file of a Kafka source; the zero is for versions of Spark that nobody runs any more."""
_COMPACT = ".compact"
_BLOCK = 512
_CHECKSUM_HEADER = b"crc\0" + _BLOCK.to_bytes(4, "big")
"""Of Hadoop's local file system: then follows the CRC-32 of each block."""


def query_id(checkpoint: Path) -> str | None:
    """The id of the query that the checkpoint belongs to; None if there is none that can be read."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8").splitlines()[0])["id"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def is_done(checkpoint: Path, number: str) -> bool:
    """Whether Spark has noted that a micro-batch is done."""
    return (checkpoint / "commits" / number).exists()


def repair(checkpoint: Path, keeps_files: bool = True) -> None:
    """Take back what a power cut left half written. To be called while no flow runs on it. Raises ConfigError when it
    cannot be read or changed.

    `keeps_files`: its sources are files, of which Spark keeps a log; of others it keeps where they began.
    """
    try:
        if not keeps_files:
            _mend_beginnings(checkpoint)
        _mend(checkpoint, [*checkpoint.glob("sources/*")] if keeps_files else [])
    except OSError as error:
        raise ConfigError(f"{error.filename or checkpoint}: {error.strerror}") from None


def _mend_beginnings(checkpoint: Path) -> None:
    """Without the file Spark looks again where its sources begin, for which only a first micro-batch needs it."""
    for file in checkpoint.glob("sources/*/0"):
        if not _is_whole(file, _BEGINNING):
            log.warning(
                "%s is damaged; if no micro-batch is done yet, starting_offsets are looked up again", file
            )
            file.unlink()
            _checksums(file).unlink(missing_ok=True)


def _mend(checkpoint: Path, sources: list[Path]) -> None:
    logs = [checkpoint / "offsets", checkpoint / "commits", *sources]
    metadata = checkpoint / "metadata"
    if not any(map(_numbered, logs)):
        if query_id(checkpoint) is None:
            metadata.unlink(missing_ok=True)
            _checksums(metadata).unlink(missing_ok=True)
        return
    if query_id(checkpoint) is None:
        log.warning("%s is damaged; the flow continues under another id", metadata)
        # Spark refuses a checkpoint that has none.
        write_atomically(metadata, json.dumps({"id": str(uuid.uuid4())}).encode())
    if not _heal_checksum(metadata):
        _checksums(metadata).unlink()
    damaged = [file for folder in logs for file in _numbered(folder) if not _is_whole(file)]
    if not damaged:
        return
    first = min(_number(file) for file in damaged)
    later = [file for folder in logs for file in _numbered(folder) if _number(file) >= first]
    if all(_is_continuous(folder, first) for folder in sources):
        log.warning("%s: damaged from micro-batch %d on; what came since is read again", checkpoint, first)
        for file in later:
            file.unlink()
            _checksums(file).unlink(missing_ok=True)
    else:
        log.warning("%s is damaged: all files are read again", checkpoint)
        _set_aside(checkpoint)


def _set_aside(checkpoint: Path) -> None:
    number = 0
    while (aside := checkpoint.with_name(f"{checkpoint.name}.damaged-{number}")).exists():
        number += 1
    checkpoint.rename(aside)


def _is_continuous(source: Path, end: int) -> bool:
    """Whether what the files before number `end` report reaches back to the first: each is there, or a later one that
    is there holds all before it."""
    names = {file.name for file in _numbered(source)}
    wanted = end - 1
    while wanted >= 0 and f"{wanted}{_COMPACT}" not in names:
        if str(wanted) not in names:
            return False
        wanted -= 1
    return True


def _numbered(folder: Path) -> list[Path]:
    """The files of one of Spark's logs; others are its temporary ones."""
    if not folder.is_dir():
        return []
    return [file for file in folder.iterdir() if file.name.removesuffix(_COMPACT).isdecimal()]


def _number(file: Path) -> int:
    return int(file.name.removesuffix(_COMPACT))


def _is_whole(file: Path, version: bytes = _VERSION) -> bool:
    lines = file.read_bytes().split(b"\n")
    # A micro-batch without new files of a source is the version alone.
    if lines[0] != version or not all(map(_is_json, lines[1:])):
        return False
    return _heal_checksum(file)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line or b"null")
    except ValueError:
        return False
    return True


def _checksums(file: Path) -> Path:
    """Where Hadoop keeps a file's checksums, without which it reads the file as it is."""
    return file.with_name(f".{file.name}.crc")


def _heal_checksum(file: Path) -> bool:
    """Whether a file is what Hadoop wrote by its checksums; torn ones are removed, since Hadoop would refuse the file."""
    beside = _checksums(file)
    if not beside.exists():
        return True
    content, checksums = file.read_bytes(), beside.read_bytes()
    blocks = [content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK)]
    if len(checksums) != len(_CHECKSUM_HEADER) + 4 * len(blocks) or not checksums.startswith(
        _CHECKSUM_HEADER
    ):
        log.warning("%s is damaged and not needed", beside)
        beside.unlink()
        return True
    return checksums == _CHECKSUM_HEADER + b"".join(crc32(block).to_bytes(4, "big") for block in blocks)
