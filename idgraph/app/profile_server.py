"""Starting the profile service from the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring, provider_of
from idgraph.app.observation.json_logs import say
from idgraph.app.settings.document import Settings
from idgraph.web import audit
from idgraph.web.audit import AuditLog, AuditReport
from idgraph.web.limits import RateLimit
from idgraph.web.server import serve, serving
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.api.service import ProfileService
from sinks.http.metadata import MetadataClient


def serve_here(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve until the process is asked to stop. Raises ConfigError, KeyProviderError, StoreError."""
    with application(settings) as app:
        serve(
            app,
            host or settings.profiles.host,
            settings.profiles.port if port is None else port,
            lambda url: say(f"profile service on {url}, its interface on {url}/docs"),
        )


@contextmanager
def serving_here(settings: Settings, port: int = 0) -> Iterator[str]:
    """Serve from a thread while the block runs; gives the URL."""
    with application(settings) as app, serving(app, "127.0.0.1", port) as url:
        yield url


def audit_file(settings: Settings) -> Path:
    """Where reveals are recorded."""
    return settings.directory / "audit.jsonl"


def verify_audit(settings: Settings) -> AuditReport:
    """Check the audit log. Raises StoreError, KeyProviderError."""
    ensure_keyring(settings)
    return audit.verify(audit_file(settings), provider_of(settings).purpose_key(audit.PURPOSE))


@contextmanager
def application(settings: Settings) -> Iterator[FastAPI]:
    """The service, while the block runs. Raises ConfigError, KeyProviderError, StoreError."""
    ensure_keyring(settings)
    token = wiring.profiles_token(settings)
    with wiring.opened_to_read(settings) as adapters, MetadataClient(settings.metadata.url, token) as client:

        def require_keys() -> None:
            wiring.require_own_keyring(settings, adapters, notes=False)

        require_keys()
        key = provider_of(settings).purpose_key(audit.PURPOSE)
        with Following(client) as following:
            service = ProfileService(adapters, following, AuditLog(audit_file(settings), key), require_keys)
            per_second = settings.profiles.requests_per_second
            yield create_app(service, RateLimit(per_second, max(1, int(2 * per_second))))
