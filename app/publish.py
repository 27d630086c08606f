"""Publishing events to a source: a file that appears whole, by rename."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from ingestion.configuration import SourceConfig
from ingestion.durable_files import sync_folder
from ingestion.source_files import is_glob
from model.errors import ConfigError


def publish_lines(source: SourceConfig, lines: Iterable[bytes]) -> Path:
    """Write lines, each ending in a line feed, as one new file of a source; durable when it returns.

    Raises ConfigError for a source that is a glob of files.
    """
    if is_glob(source.path):
        raise ConfigError(
            f"source {source.name} is a glob of files ({source.path.name}); publish needs a directory"
        )
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.jsonl"
    part = source.path / f".{name}.part"
    try:
        source.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
        part.rename(source.path / name)
        sync_folder(source.path)
    except OSError as error:
        raise ConfigError(f"{source.path}: {error.strerror}") from None
    return source.path / name
