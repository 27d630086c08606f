"""Which files belong to which source, and the one path that Spark is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingestion.configuration import FileSource
from ingestion.source_files import is_glob, source_of, spark_path
from model.errors import ConfigError


def sources(**paths: str) -> dict[str, FileSource]:
    return {name: FileSource(name=name, path=Path(path)) for name, path in paths.items()}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/in/web", False),
        ("/in/*.jsonl", True),
        ("/in/a?.jsonl", True),
        ("/in/[ab].jsonl", True),
        ("/i*n/web", False),
    ],
)
def test_only_the_name_may_be_a_glob(path: str, expected: bool) -> None:
    assert is_glob(Path(path)) is expected


def test_a_directory_holds_no_other_directorys_files() -> None:
    known = sources(web="/in/web", app="/in/app")
    assert source_of(Path("/in/web/x.jsonl"), known) == "web"
    assert source_of(Path("/in/app/x.jsonl.gz"), known) == "app"
    for elsewhere in ("/in/x.jsonl", "/in/web2/x.jsonl", "/other/web/x.jsonl"):
        with pytest.raises(ConfigError, match="no source holds a file"):
            source_of(Path(elsewhere), known)


def test_the_first_of_several_that_hold_a_file() -> None:
    known = sources(special="/in/s-*.jsonl", all="/in/*.jsonl")
    assert source_of(Path("/in/s-1.jsonl"), known) == "special"
    assert source_of(Path("/in/t-1.jsonl"), known) == "all"
    assert source_of(Path("/in/S-1.jsonl"), known) == "all"
    with pytest.raises(ConfigError):
        source_of(Path("/in/s-1.jsonl.gz"), known)


def test_one_path_for_all() -> None:
    assert spark_path(sources(web="/in/web", app="/in/app/*.jsonl")) == "/{in/web,in/app/*.jsonl}"


def test_what_a_glob_would_read_into_a_directory_is_escaped() -> None:
    assert spark_path(sources(web="/i{n}/a*b/we[b],x/y", app="/a*b/*.jsonl")) == (
        r"/{i\{n\}/a\*b/we\[b\]\,x/y,a\*b/*.jsonl}"
    )
