"""Which files belong to which source, and the one path that Spark is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from idgraph.model.sources import FileSource, is_glob, require_plain_glob
from ingestion.sources.files.taken import source_of, spark_path


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
        assert source_of(Path(elsewhere), known) is None


def test_the_first_of_several_that_hold_a_file() -> None:
    known = sources(special="/in/s-*.jsonl", all="/in/*.jsonl")
    assert source_of(Path("/in/s-1.jsonl"), known) == "special"
    assert source_of(Path("/in/t-1.jsonl"), known) == "all"
    assert source_of(Path("/in/S-1.jsonl"), known) == "all"
    assert source_of(Path("/in/s-1.jsonl.gz"), known) is None
    assert source_of(Path("/in/s-1.jsonl/x.jsonl"), known) is None, "a directory that a glob matches"


@pytest.mark.parametrize(
    "name", ["*", "*.jsonl", "a?.jsonl", "[ab]*", "[a-z0-9_-]*", "[!a]^!*", "x]*", "part-[0-9][0-9].jsonl"]
)
def test_a_glob_that_hadoop_and_python_read_alike(name: str) -> None:
    require_plain_glob(Path("/i{n}") / name)


@pytest.mark.parametrize(
    "name",
    ["*.{json,jsonl}", "*,*", r"\**", "[^a]*", "[]a]*", "[a*", "[a-c-e]*", "[z-a]*", "[[a]*", "[]*", "[!]*"],
)
def test_a_glob_that_they_read_differently_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="and no braces, commas, backslashes"):
        require_plain_glob(Path("/in") / name)
    with pytest.raises(ValidationError, match="give what braces distinguish as several sources"):
        FileSource(name="web", path=Path("/in") / name)


def test_a_directory_may_have_any_name() -> None:
    require_plain_glob(Path("/in/{web,app}"))


def test_one_path_for_all() -> None:
    assert spark_path(sources(web="/in/web", app="/in/app/*.jsonl")) == "/{in/web,in/app/*.jsonl}"


def test_what_a_glob_would_read_into_a_directory_is_escaped() -> None:
    assert spark_path(sources(web="/i{n}/a*b/we[b],x/y", app="/a*b/*.jsonl")) == (
        r"/{i\{n\}/a\*b/we\[b\]\,x/y,a\*b/*.jsonl}"
    )
