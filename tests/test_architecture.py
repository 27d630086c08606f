"""The dependency rules of docs/extend.md, held to the imports that there are."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT: dict[str, frozenset[str]] = {
    "model": frozenset(),
    "transforms": frozenset({"model"}),
    "merge": frozenset({"model"}),
    "sinks": frozenset({"model", "transforms", "merge"}),
    "metadata_service": frozenset({"model", "transforms"}),
    "profile_service": frozenset({"model", "transforms", "merge"}),
    "ingestion": frozenset({"model", "transforms", "merge"}),
    "app": frozenset(
        {"model", "transforms", "merge", "sinks", "metadata_service", "profile_service", "ingestion"}
    ),
}
"""Our packages, and which others of ours each may import. Everything points at `model`."""

ONLY_IN: dict[str, tuple[str, ...]] = {
    "pyspark": (
        "ingestion/flow.py",
        "ingestion/input_stream.py",
        "ingestion/file_stream.py",
        "ingestion/kafka_stream.py",
        "ingestion/kafka_lag.py",
        "ingestion/micro_batch.py",
        "ingestion/session.py",
        "ingestion/task_context.py",
        "ingestion/class_archive.py",
        "ingestion/local_disk.py",
    ),
    "py4j": (),
    "pyarrow": (
        "ingestion/parcels.py",
        "ingestion/tasks.py",
        "ingestion/task_records.py",
    ),
    "pandas": (),
    "boto3": ("sinks/aws_connection.py",),
    "botocore": (
        "sinks/aws_connection.py",
        "sinks/dynamo_connection.py",
        "sinks/dynamo_client.py",
        "sinks/kms_envelope.py",
    ),
    "confluent_kafka": (
        "sinks/kafka_publisher.py",
        "sinks/kafka_ends.py",
        "sinks/kafka_ranges.py",
        "sinks/kafka_topics.py",
    ),
    "elasticsearch": ("sinks/elasticsearch_connection.py", "sinks/elasticsearch_client.py"),
    "elastic_transport": ("sinks/elasticsearch_client.py",),
    "fastavro": ("transforms/payloads/avro.py",),
    "google": ("transforms/payloads/protobuf.py",),
    "httpx": ("sinks/",),
    # The metadata service opens its own SQLite file; SQLAlchemy only borrows the connection.
    "sqlite3": ("sinks/", "metadata_service/database.py"),
    "sqlalchemy": ("metadata_service/", "app/"),
    "alembic": ("metadata_service/",),
    "fastapi": ("metadata_service/", "app/"),
    "starlette": ("metadata_service/",),
    "uvicorn": ("metadata_service/",),
    "prometheus_client": ("app/observation/", "metadata_service/request_metrics.py"),
    "typer": ("app/",),
    "rich": ("app/",),
    "cryptography": ("transforms/", "sinks/"),
    "phonenumbers": ("transforms/detection/",),
    "stdnum": ("transforms/detection/",),
    "jmespath": ("transforms/expressions/", "transforms/operations/"),
}
"""Other people's packages that are used in one place only: files, or folders with a slash at the end."""

ADAPTERS = tuple(sorted(ONLY_IN))
PURE = ("model", "transforms", "merge")
NO_INPUT_OR_OUTPUT = frozenset(
    {"socket", "subprocess", "sqlite3", "urllib", "http", "asyncio", "multiprocessing"}
)
UNCLEAR_NAMES = ("utils", "util", "helpers", "helper", "manager", "managers", "common", "misc")


class Import(NamedTuple):
    """One import of a module, wherever in the file it stands."""

    file: str
    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(file: Path) -> Iterator[Import]:
    place = file.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(place, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            yield Import(place, node.lineno, "." * node.level + (node.module or ""))


@cache
def all_imports() -> list[Import]:
    # Read by the tests and not when this file is imported: each worker imports it, one runs it.
    return [found for package in MAY_IMPORT for file in files(package) for found in imports(file)]


def told(found: list[Import]) -> list[str]:
    return [str(item) for item in found]


def test_something_is_looked_at() -> None:
    assert {item.file.partition("/")[0] for item in all_imports()} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    forbidden = MAY_IMPORT.keys() - MAY_IMPORT[package] - {package} | {"tests", "benchmarks"}
    wrong = [item for item in all_imports() if item.file.startswith(f"{package}/") and item.top in forbidden]
    assert told(wrong) == []


def test_nothing_imports_relatively() -> None:
    assert told([item for item in all_imports() if item.module.startswith(".")]) == []


@pytest.mark.parametrize("library", ADAPTERS)
def test_a_library_is_used_in_its_place_only(library: str) -> None:
    places = ONLY_IN[library]
    wrong = [item for item in all_imports() if item.top == library and not item.file.startswith(places)]
    assert told(wrong) == []


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_do_no_input_or_output(package: str) -> None:
    wrong = [
        item
        for item in all_imports()
        if item.file.startswith(f"{package}/") and item.top in NO_INPUT_OR_OUTPUT
    ]
    assert told(wrong) == []


def test_only_the_composition_root_wires_adapters() -> None:
    users = {item.file.partition("/")[0] for item in all_imports() if item.top == "sinks"}
    assert users == {"sinks", "app"}


def test_module_names_say_what_is_in_them() -> None:
    unclear = [
        file.relative_to(ROOT).as_posix()
        for package in MAY_IMPORT
        for file in files(package)
        if file.stem in UNCLEAR_NAMES or file.parent.name in UNCLEAR_NAMES
    ]
    assert unclear == []


def test_our_packages_do_not_hide_the_standard_library() -> None:
    assert not MAY_IMPORT.keys() & sys.stdlib_module_names
