"""How positions name files: as they are called, or by a keyed hash where the name itself is personal data.

A position is readable wherever it goes: dead letters, schema changes and the catalogue's history have it.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from ingestion.sources.configuration import FileSource
from transforms.privacy.blind_index import BlindIndex
from transforms.schema.detection.detection import shaped_key

# Hyphens stand within numbers as well as between words, so both readings count.
_BETWEEN_WORDS = (re.compile(r"[_=,; ]+"), re.compile(r"[-_=,; ]+"))


class FileNames:
    """Names of files below their source's directory, as positions may show them."""

    def __init__(self, blind_index: BlindIndex) -> None:
        self._blind_index = blind_index

    def shown(self, name: str, source: FileSource | None) -> str:
        """The name, or `~` and 22 characters that only a holder of the keyring can test a guess against.
        The same name always gives the same. Without a source nobody says that names may be seen."""
        if source is None or source.hash_file_names or looks_sensitive(name):
            return self._blind_index.file_name(name)
        return name


def looks_sensitive(name: str) -> bool:
    """Whether a file's name, a folder's on the way to it, or a word of either looks like personal data."""
    parts = PurePath(name).parts
    stems = [part.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json") for part in parts]
    words = (word for stem in stems for between in _BETWEEN_WORDS for word in between.split(stem))
    return any(shaped_key(text) for text in (*stems, *words))
