"""Which versions of an embedded index still have a word in their files: also of documents that were deleted, whose words
stay until they are compacted. The files are compressed, so a search for their bytes does not tell."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sinks.index_values import words
from sinks.tantivy.folder import IndexFolder


def versions_with(folder: Path, *texts: str) -> list[str]:
    """The names of versions that have a word of these texts."""
    wanted = [word for text in texts for word in words(text)]
    with closing(IndexFolder(folder)) as opened:
        return [
            version.name
            for version in opened.versions()
            if any(opened.open(version).searcher().terms_with_prefix("words", word) for word in wanted)
        ]
