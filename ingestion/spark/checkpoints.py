"""A flow's checkpoint: what Spark wrote of which files or offsets were taken, and a new one after a power cut.

Spark renames its files into place without flushing them, so a power cut can leave files that are empty or end too
early, at which Spark refuses to start. All input is read again then, which changes nothing of the profiles.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from zlib import crc32

from idgraph.model.errors import ConfigError

log = logging.getLogger(__name__)

_VERSIONS = (b"v1", b"\0v1")
"""The second begins the file of a Kafka source; the zero is for versions of Spark that nobody runs any more."""
_COMPACT = ".compact"
_BLOCK = 512
_CHECKSUM_HEADER = b"crc\0" + _BLOCK.to_bytes(4, "big")
"""The header of Hadoop's local file system: then follows the CRC-32 of each block."""


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
    """Set a checkpoint aside that has a torn file, so that all files are read again. To be called while no flow runs on
    it. Raises ConfigError when it cannot be read or changed.

    Unless `keeps_files`, its sources are topics, of which it may say where they began: it raises ConfigError.
    """
    try:
        torn = next(_torn(checkpoint), None)
        if torn is None:
            return
        places = (checkpoint.with_name(f"{checkpoint.name}.damaged-{number}") for number in count())
        aside = next(each for each in places if not each.exists())
        if not keeps_files:
            raise ConfigError(
                f"{torn} is damaged, as by a power cut. Nothing is lost unless kafka.starting_offsets is `latest`: set "
                f'it to "earliest" then. `mv {checkpoint} {aside}`, then run again; the flow reads from there on, and '
                "records that it had read already change nothing"
            )
        log.warning("%s is damaged: all files are read again, and the checkpoint is kept as %s", torn, aside)
        checkpoint.rename(aside)
    except OSError as error:
        raise ConfigError(f"{error.filename or checkpoint}: {error.strerror}") from None


def _torn(checkpoint: Path) -> Iterator[Path]:
    """The files that are not whole."""
    metadata = checkpoint / "metadata"
    logs = [checkpoint / "offsets", checkpoint / "commits", *checkpoint.glob("sources/*")]
    files = [file for folder in logs if folder.is_dir() for file in folder.iterdir() if _is_of_log(file)]
    if (files or metadata.exists()) and (query_id(checkpoint) is None or not _fits_checksums(metadata)):
        yield metadata
    yield from (file for file in files if not _is_whole(file))


def _is_of_log(file: Path) -> bool:
    """Whether it is one of a log's own; others are Spark's temporary ones."""
    return file.name.removesuffix(_COMPACT).isdecimal()


def _is_whole(file: Path) -> bool:
    version, *lines = file.read_bytes().split(b"\n")
    # A micro-batch without new files of a source is the version alone.
    return version in _VERSIONS and all(map(_is_json, lines)) and _fits_checksums(file)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line or b"null")
    except ValueError:
        return False
    return True


def _fits_checksums(file: Path) -> bool:
    """Whether a file is what Hadoop wrote by the checksums that it keeps beside it, without which it reads it as it is."""
    beside = file.with_name(f".{file.name}.crc")
    if not beside.exists():
        return True
    content = file.read_bytes()
    blocks = [content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK)]
    return beside.read_bytes() == _CHECKSUM_HEADER + b"".join(
        crc32(block).to_bytes(4, "big") for block in blocks
    )
