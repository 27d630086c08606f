"""One metadata service and one keyring for all installations of the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from idgraph.app.java import require_java
from idgraph.model.attributes import AttributeDefinition
from idgraph.model.canonical import decode
from idgraph.model.errors import ConfigError
from idgraph.model.specs import SpecDefinition
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from sinks.keyring.provider import KeyringFile
from tests.installation import EXAMPLES, Installation, Shop, retail
from tests.metadata_service.made_tokens import create_token
from tests.undisturbed import take

FIRST = {"segment": 500, "amplitude": 300, "orders": 200}
"""How many events of each source most tests take, which begin at the first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        require_java()
    except ConfigError as error:
        reason = " ".join(str(error).split())
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop's specs and attributes in a running service."""
    with serving_shop(tmp_path_factory.mktemp("shop")) as (shop, _):
        yield shop


@contextmanager
def serving_shop(folder: Path) -> Iterator[tuple[Shop, Callable[..., str]]]:
    """A shop whose service and keyring are in a folder, and what makes a token of a name and a role."""
    KeyringFile.create(folder / "keyring.json")
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    create = partial(create_token, app.state.service.database)
    token = create("tests", Role.ADMIN)
    with serving(app) as url, MetadataClient(url, token) as client:
        declare(client)
        yield Shop(url, token, folder / "keyring.json"), create


def declare(client: MetadataClient) -> None:
    """The retail example's attributes and specs."""
    for item in decode((EXAMPLES / "retail" / "attributes.json").read_bytes()):
        client.put_attribute(AttributeDefinition.model_validate(item))
    for file in sorted((EXAMPLES / "retail" / "specs").glob("*.json")):
        client.put_spec(SpecDefinition.model_validate_json(file.read_bytes()))


def declare_counters(client: MetadataClient) -> None:
    """What is bought as sum, count and maximum too: what an event that is taken twice would double."""
    edits = EXAMPLES / "retail" / "edits"
    for item in decode((edits / "spending-attributes.json").read_bytes()):
        client.put_attribute(AttributeDefinition.model_validate(item))
    client.put_spec(SpecDefinition.model_validate_json((edits / "spending.json").read_bytes()))


@pytest.fixture(scope="session")
def first_thousand(tmp_path_factory: pytest.TempPathFactory, shop: Shop) -> Installation:
    """The first events from files into the embedded stores; to be looked at only."""
    installation = Installation(tmp_path_factory.mktemp("first-thousand"), shop)
    report = take(installation, {source: retail(source)[:events] for source, events in FIRST.items()})
    assert report.events == sum(FIRST.values())
    return installation


@pytest.fixture(scope="session")
def first_profiles(first_thousand: Installation) -> bytes:
    """The profiles of the first events."""
    return first_thousand.profiles()


def publish_first(installation: Installation) -> None:
    """The first events as files."""
    for source, events in FIRST.items():
        installation.publish(source, retail(source)[:events])
