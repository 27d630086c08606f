"""The services' descriptions of themselves: every reference leads somewhere, every operation can answer with a
problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from idgraph.web.application import StrictParameters
from idgraph.web.audit import AuditFile, AuditLog
from metadata_service.api.app import create_app as create_metadata
from metadata_service.api.service import ServiceSettings
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.service import ProfileService
from tests.profile_service.api.conftest import Metadata
from tests.retail import Pipeline, snapshot

pytestmark = pytest.mark.slow


def metadata(folder: Path) -> FastAPI:
    return create_metadata(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))


def profiles(folder: Path) -> FastAPI:
    following = Following(Metadata(snapshot(), []))
    return create_app(
        ProfileService(Pipeline(folder), following, AuditLog(AuditFile(folder / "audit.jsonl"), b"key"))
    )


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


@pytest.mark.parametrize("made", [metadata, profiles])
def test_a_description_is_whole(made: Any, tmp_path: Path) -> None:
    document = made(tmp_path).openapi()
    found = set(references(document))
    assert found
    for reference in found:
        place = document
        for key in reference.removeprefix("#/").split("/"):
            assert key in place, reference
            place = place[key]
    for operations in document["paths"].values():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert "422" not in operation["responses"]


@pytest.mark.parametrize("made", [metadata, profiles])
def test_query_parameters_are_those_that_are_described(made: Any, tmp_path: Path) -> None:
    app = made(tmp_path)
    paths = app.openapi()["paths"]
    strict = [each for each in app.routes if isinstance(getattr(each, "app", None), StrictParameters)]
    assert len(strict) > 60
    for route in strict:
        for method in route.methods:
            parameters = paths[route.path][method.lower()].get("parameters", [])
            assert route.app.known == {each["name"] for each in parameters if each["in"] == "query"}
    described = {path for path in paths if path.startswith("/v1/")}
    assert described == {each.path for each in strict}
