"""The dependency rules of docs/extend.md, held to the imports that there are."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

CORE = frozenset(
    {
        "idgraph",
        "idgraph.model",
        "idgraph.files",
        "idgraph.native",
        "idgraph.repeating",
        "idgraph.signatures",
        "idgraph.snapshot_file",
    }
)
PURE = frozenset({"transforms", "merge"})
MAY_IMPORT: dict[str, frozenset[str]] = {
    "idgraph": frozenset({"idgraph.app", "idgraph.model", "profile_service", "transforms"}),
    "idgraph.model": frozenset(),
    "idgraph.client": frozenset({"idgraph.model"}),
    "idgraph.files": frozenset({"idgraph.model"}),
    "idgraph.native": frozenset({"idgraph.model"}),
    "idgraph.repeating": frozenset({"idgraph.model"}),
    "idgraph.signatures": frozenset({"idgraph.model", "idgraph.files"}),
    "idgraph.snapshot_file": frozenset({"idgraph.model", "idgraph.files"}),
    "transforms": CORE,
    "merge": CORE,
    "sinks": CORE | PURE,
    "idgraph.projection": CORE | PURE,
    "idgraph.web": CORE,
    "metadata_service": CORE | {"idgraph.web", "idgraph.client", "transforms"},
    "profile_service": CORE | PURE | {"idgraph.projection", "idgraph.web"},
    "ingestion": CORE | PURE | {"idgraph.projection"},
    "idgraph.jobs": CORE | PURE | {"idgraph.projection", "ingestion", "profile_service"},
}
"""Our packages, and which others of ours each may import. Everything points at `idgraph.model`; `idgraph.app`, the composition
root, may import all of them, and none of them may import it but `idgraph` itself, the face that users import."""

TOP_LEVEL = ("idgraph", "ingestion", "merge", "metadata_service", "profile_service", "sinks", "transforms")


def package_of(module: str) -> str:
    """The package of ours that a module belongs to: `idgraph.model.errors` to `idgraph.model`."""
    top, _, rest = module.partition(".")
    return f"{top}.{rest.partition('.')[0]}" if top == "idgraph" and rest else top


ONLY_IN: dict[str, tuple[str, ...]] = {
    "pyspark": ("ingestion/spark/", "ingestion/sources/"),
    "py4j": (),
    "pyarrow": (
        "idgraph/app/payload_rows.py",
        "idgraph/app/reader.py",
        "idgraph/jobs/features/",
        "idgraph/jobs/suggestions.py",
        "ingestion/spark/",
        "profile_service/tables.py",
    ),
    "pandas": ("idgraph/app/reader.py", "profile_service/tables.py"),
    "boto3": ("sinks/aws_connection.py",),
    "botocore": ("sinks/aws_connection.py", "sinks/dynamodb/", "sinks/kms.py"),
    "confluent_kafka": ("sinks/kafka/",),
    "pulsar": ("sinks/pulsar/",),
    "elasticsearch": ("sinks/elasticsearch/",),
    "elastic_transport": ("sinks/elasticsearch/",),
    "fastavro": ("transforms/payloads/avro.py",),
    "google": ("transforms/payloads/protobuf.py",),
    "onnx": ("transforms/behaviour/models.py",),
    "onnxruntime": ("transforms/behaviour/models.py",),
    "re2": ("transforms/spec/jolt/functions/patterns.py",),
    "httpx": ("sinks/", "idgraph/client/"),
    # The metadata service opens its own SQLite file; SQLAlchemy only borrows the connection.
    "sqlite3": ("sinks/", "metadata_service/storage/database.py"),
    "sqlalchemy": ("metadata_service/", "idgraph/web/", "idgraph/app/"),
    "alembic": ("metadata_service/storage/",),
    "fastapi": ("metadata_service/", "profile_service/api/", "idgraph/web/", "idgraph/app/"),
    "starlette": ("metadata_service/", "profile_service/api/", "idgraph/web/"),
    "granian": ("idgraph/web/server.py",),
    "prometheus_client": ("idgraph/app/observation/", "idgraph/web/metrics.py"),
    "typer": ("idgraph/app/",),
    "rich": ("idgraph/app/",),
    "tantivy": ("sinks/tantivy/", "sinks/index_values.py"),
    "cryptography": (
        "idgraph/signatures.py",
        "idgraph/web/cursors.py",
        "metadata_service/storage/passwords.py",
        "transforms/privacy/",
        "sinks/keyring/",
    ),
    "phonenumbers": ("merge/identity/normal_forms.py", "transforms/schema/detection/"),
    "stdnum": ("transforms/schema/detection/",),
    "splink": ("idgraph/jobs/suggestions.py",),
    "jinja2": ("metadata_service/ui/",),
    "jmespath": ("transforms/spec/jmespath/",),
}
"""Other people's packages that are used in one place only: files, or folders with a slash at the end."""

ADAPTERS = tuple(sorted(ONLY_IN))
NO_INPUT_OR_OUTPUT = frozenset(
    {"socket", "subprocess", "sqlite3", "urllib", "http", "asyncio", "multiprocessing"}
)
MOST_TO_READ = 88
"""Modules of ours that the application behind the REST interface loads; a command that reads profiles loads them too."""
MOST_TO_SERVE = 135
"""The same with the REST interface."""
MOST_WAYS = {
    "threads of our own": 5,
    "HTTP options of their own": 2,
    "pauses between retries of their own": 1,
    "caches by hand": 1,
    "locks of files": 1,
    "nearest names": 1,
    "notices of a fork": 3,
}
"""Files that do one thing in a way of their own, as `scripts/house` counts them. Other notices of a fork are names that hold a
process id."""
MOST_IMPORTS = 0.091
"""The share of import lines."""
MOST_WITH_ONE_READER = 132
"""Modules that one other module imports: each adapter is one, which only the composition root wires."""
STILL_SHARED = ("Order",)
"""Names of two classes: of a search's answers, and of links."""
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


def files() -> list[Path]:
    return sorted(file for package in TOP_LEVEL for file in (ROOT / package).rglob("*.py"))


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(file: Path) -> Iterator[Import]:
    place = file.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(place, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module == "idgraph":
                yield from (Import(place, node.lineno, f"idgraph.{alias.name}") for alias in node.names)
            else:
                yield Import(place, node.lineno, module)


@cache
def all_imports() -> list[Import]:
    # Read by the tests and not when this file is imported: each worker imports it, one runs it.
    return [found for file in files() for found in imports(file)]


def loaded(file: Path) -> Iterator[str]:
    """Modules that a module imports when it is imported itself: those within functions, or for types only, are left out."""
    waiting: list[ast.AST] = [ast.parse(file.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def reach(package: str, without: str = "-") -> set[str]:
    """The modules of ours that importing all of a package loads, with the packages that they are in."""
    modules = {module_of(file): file for file in files()}
    waiting = [
        module for module in modules if module.partition(".")[0] == package and not module.startswith(without)
    ]
    found: set[str] = set()
    while waiting:
        module = waiting.pop()
        parts = module.split(".")
        for name in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
            if name in modules and name not in found:
                found.add(name)
                waiting.extend(loaded(modules[name]))
    return found


def shown(found: list[Import]) -> list[str]:
    return [str(item) for item in found]


def test_something_is_looked_at() -> None:
    assert {item.file.partition("/")[0] for item in all_imports()} == set(TOP_LEVEL)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    wrong = [
        item
        for item in all_imports()
        if package_of(module_of(ROOT / item.file)) == package
        and item.top in (*TOP_LEVEL, "tests", "benchmarks")
        and package_of(item.module) not in MAY_IMPORT[package] | {package}
    ]
    assert shown(wrong) == []


def test_nothing_imports_relatively() -> None:
    assert shown([item for item in all_imports() if item.module.startswith(".")]) == []


@pytest.mark.parametrize("library", ADAPTERS)
def test_a_library_is_used_in_its_place_only(library: str) -> None:
    places = ONLY_IN[library]
    wrong = [item for item in all_imports() if item.top == library and not item.file.startswith(places)]
    assert shown(wrong) == []


def test_pure_packages_do_no_input_or_output() -> None:
    wrong = [
        item
        for item in all_imports()
        if item.file.startswith(("idgraph/model/", "transforms/", "merge/"))
        and item.top in NO_INPUT_OR_OUTPUT
    ]
    assert shown(wrong) == []


def test_only_the_composition_root_wires_adapters() -> None:
    users = {package_of(module_of(ROOT / item.file)) for item in all_imports() if item.top == "sinks"}
    assert users == {"sinks", "idgraph.app"}


def test_module_names_say_what_is_in_them() -> None:
    unclear = [
        file.relative_to(ROOT).as_posix()
        for file in files()
        if file.stem in UNCLEAR_NAMES or file.parent.name in UNCLEAR_NAMES
    ]
    assert unclear == []


def test_a_class_name_names_one_class() -> None:
    places: dict[str, list[str]] = {}
    for file in files():
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{file.relative_to(ROOT).as_posix()}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len(found) > 1 and name not in STILL_SHARED}
    assert shared == {}


def test_our_packages_do_not_hide_the_standard_library() -> None:
    assert not set(TOP_LEVEL) & sys.stdlib_module_names


def test_one_thing_is_done_in_one_way() -> None:
    house = run_path(str(ROOT / "scripts" / "house"), run_name="house")
    found = house["ways_in"](ast.parse(file.read_bytes()) for file in files())
    assert {name: number for name, number in found.items() if number > MOST_WAYS[name]} == {}


def test_the_code_is_in_few_pieces() -> None:
    found = run_path(str(ROOT / "scripts" / "house"), run_name="house")["measured"](ROOT)
    assert found.import_lines / found.lines <= MOST_IMPORTS
    assert len(found.one_reader) <= MOST_WITH_ONE_READER, found.one_reader


def test_reading_profiles_loads_little() -> None:
    found = reach("profile_service")
    assert {
        module for module in found if module.startswith(("ingestion", "transforms.spec", "sinks"))
    } == set()
    assert len(found) <= MOST_TO_SERVE, sorted(found)
    without = reach("profile_service", without="profile_service.api")
    assert len(without) <= MOST_TO_READ, sorted(without)
