"""Starting the metadata service from the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from fastapi import FastAPI

from idgraph.app import wiring
from idgraph.app.observation.json_logs import say
from idgraph.app.settings.document import Settings
from idgraph.files import write_private
from idgraph.model.errors import ConfigError
from idgraph.web.refusals import ClashError
from idgraph.web.server import serve, serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role, create_token

SERVICE_NAME = "profile-service"
TOKEN_NAME = "first-admin"  # noqa: S105 - a name, not a token


def serve_here(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve until the process is asked to stop. Raises ConfigError."""
    address = urlsplit(settings.metadata.url)
    app = _application(settings)
    host = host or address.hostname or "127.0.0.1"
    port = address.port or 8410 if port is None else port

    def show_report(url: str) -> None:
        say(f"metadata service on {url}, token in {settings.token_file()}")

    serve(app, host, port, show_report)


@contextmanager
def serving_here(settings: Settings, port: int = 0) -> Iterator[str]:
    """Serve from a thread while the block runs; gives the URL."""
    with serving(_application(settings), "127.0.0.1", port) as url:
        yield url


def _application(settings: Settings) -> FastAPI:
    wiring.prepare_directory(settings)
    app = create_app(ServiceSettings(settings.database_url()))
    database = app.state.service.database
    try:
        # The same token again has no effect, so a configured or earlier one simply stays valid.
        create_token(database, TOKEN_NAME, Role.ADMIN, wiring.metadata_token(settings))
    except ConfigError:
        write_private(settings.token_file(), create_token(database, TOKEN_NAME, Role.ADMIN))
    if settings.profiles.token is None and not settings.profiles_token_file().exists():
        _make_service_token(settings, database)
    return app


def _make_service_token(settings: Settings, database: Database) -> None:
    """The profile service's own, where both run on one machine. Elsewhere, or where it was removed: `idgraph tokens add`."""
    with suppress(ClashError):
        token = create_token(database, SERVICE_NAME, Role.SERVICE)
        write_private(settings.profiles_token_file(), token)
