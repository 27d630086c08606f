"""Starting the metadata service from the configuration."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from urllib.parse import urlsplit

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.shared_state import shared_flows
from idgraph.app.adapters.stores import DEAD_LETTERS, PROFILES, open_profiles, worker_config
from idgraph.app.metadata_database import opened_metadata_database, service_key
from idgraph.app.observation.json_logs import say
from idgraph.app.settings.document import ADMIN_TOKEN, Settings
from idgraph.app.settings.sandbox import in_sandbox
from idgraph.files import write_atomically
from idgraph.model.flows import FlowState
from idgraph.model.sandboxes import SandboxActivity, SandboxFlow, SandboxSide
from idgraph.snapshot_file import kept_snapshot
from idgraph.web.audit import AuditReport
from idgraph.web.metrics import log_requests
from idgraph.web.server import Transport, serve, serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage import history
from metadata_service.storage.database import Database, Revision, has_revision, unusable
from metadata_service.storage.tokens import Role, add_token, has_tokens, is_in_use
from metadata_service.ui.frame import ROOT
from metadata_service.ui.page import SIGN_IN, ProfileSource
from sinks.sqlite.dead_letters import SqliteDeadLetters

FIRST_ADMIN = "first-admin"
HIGHEST = 100
"""Clearance of the first admin's token. Its owner has the keyring beside it; all the same, it does not reveal
protected values."""


def serve_here(settings: Settings, host: str | None, port: int | None, with_link: bool = False) -> None:
    """Serve until the process is asked to stop. `with_link`: a link to sign in is shown, as on a terminal. Raises
    ConfigError."""
    address = urlsplit(settings.metadata.url)
    app = application(settings)
    host = host or address.hostname or "127.0.0.1"
    port = address.port or 8410 if port is None else port

    def show_report(url: str) -> None:
        say(f"metadata service on {url}, tokens in {settings.directory}")
        say(f"its pages on {url}{ROOT}")
        # Not into logs that others read.
        link = sign_in_link(app, url, settings) if with_link or sys.stdout.isatty() else None
        if link is not None:
            say(f"sign in once, within ten minutes: {link}")

    stated = settings.metadata
    if stated.access_log:
        log_requests()
    transport = Transport(stated.certificate_file, stated.certificate_key_file, stated.allow_plain_http)
    serve(app, host, port, show_report, transport)


@contextmanager
def serving_here(settings: Settings, port: int = 0) -> Iterator[str]:
    """Serve from a thread while the block runs; gives the URL."""
    with serving(application(settings), "127.0.0.1", port) as url:
        yield url


def sign_in_link(app: FastAPI, url: str, settings: Settings) -> str | None:
    """A link that signs the admin of this machine in once; None where there is no token of one."""
    file = settings.directory / ADMIN_TOKEN
    if not file.exists():
        return None
    code = app.state.pages.state.sessions.make_link_code(file.read_text().strip())
    return None if code is None else f"{url}{SIGN_IN}?code={code}"


def verify_history(settings: Settings) -> AuditReport | None:
    """Check the history of the metadata service, and that it has the state that the flow saw last; None where
    it is not here."""
    if not (settings.metadata.database or (settings.directory / "metadata.db").exists()):
        return None
    with opened_metadata_database(settings) as database, database.read() as session:
        report = history.verify_history(session, service_key(settings).history)
        kept = kept_snapshot(metadata_access.snapshot_file(settings))
        known = kept and Revision.of_etag(kept.etag)
        if report.broken_line is None and known and not has_revision(session, known):
            return report._replace(broken_line=known.version)
        return report


def application(settings: Settings) -> FastAPI:
    """The service with its pages. Raises ConfigError."""
    wiring.prepare_directory(settings)
    profiles, metadata = settings.profiles, settings.metadata
    key = service_key(settings)
    # Processes in this directory need not trust the first answer.
    write_atomically(settings.directory / "metadata.pub", key.public.encode())
    host = "127.0.0.1" if profiles.host in ("0.0.0.0", "::") else profiles.host  # noqa: S104 - compared, not listened on
    url = profiles.url or f"http{'s' if profiles.certificate_file else ''}://{host}:{profiles.port}"
    source = ProfileSource(url, metadata.ca_file, profiles.allow_plain_http)
    app = create_app(
        ServiceSettings(
            settings.database_url(),
            key,
            sandboxes=settings.sandboxes(),
            sandbox=settings.sandbox,
            sandbox_activity=partial(sandbox_activity, settings),
        ),
        profile_source=source,
        openid=metadata_access.single_sign_on(settings),
    )
    database: Database = app.state.service.database
    try:
        _make_tokens(settings, database)
    except SQLAlchemyError as error:
        database.close()
        raise unusable(database.engine.url, error) from None
    return app


def _make_tokens(settings: Settings, database: Database) -> None:
    """Make the first admin's token in a database that never had a token. Make the flow's and the profile
    service's where they run on this machine and have neither file nor token. Elsewhere: `idgraph tokens add`.

    Files come before the commit: a crash in between leaves tokens that no database knows, which the next
    start replaces.
    """
    with database.write(wiring.local_user(), "made by the start of the service") as edit:
        is_new = not has_tokens(edit)
        if is_new:
            token = add_token(edit, FIRST_ADMIN, Role.ADMIN, clearance=HIGHEST)
            write_atomically(settings.directory / ADMIN_TOKEN, token.encode())
        for name, role, file, is_elsewhere in (
            ("flow", Role.PIPELINE, settings.flow_token_file(), settings.metadata.flow_token_file),
            ("profile-service", Role.SERVICE, settings.profiles_token_file(), settings.profiles.token_file),
        ):
            if not is_elsewhere and (is_new or not (file.exists() or is_in_use(edit, name))):
                write_atomically(file, add_token(edit, name, role).encode())


FRESH_SECONDS = 10.0
"""A flow reports each second."""
RUNNING = (FlowState.STARTING, FlowState.RUNNING, FlowState.PAUSED)


def sandbox_activity(settings: Settings, name: str) -> SandboxActivity:
    """Raises ConfigError for an unknown sandbox, StoreError."""
    return SandboxActivity(production=_side(settings), sandbox=_side(in_sandbox(settings, name)))


def _side(settings: Settings) -> SandboxSide | None:
    if not (settings.directory / PROFILES).exists():
        return None
    with closing(open_profiles(worker_config(settings), None)) as store:
        fragments = store.count()
    letters = settings.directory / DEAD_LETTERS
    count = 0
    if letters.exists():
        with closing(SqliteDeadLetters(letters)) as dead_letters:
            count = sum(dead_letters.counts().values())
    with shared_flows(settings) as shared:
        reports = [report for report in map(shared.report, shared.names()) if report]
    flows = []
    for report in reports:
        age = time.time() - report.written_ms / 1000
        is_running = report.state in RUNNING and age < FRESH_SECONDS
        flows.append(
            SandboxFlow(
                name=report.name,
                state=report.state,
                is_running=is_running,
                events_per_second=report.events_per_second if is_running else 0.0,
            )
        )
    return SandboxSide(fragments=fragments, dead_letters=count, flows=flows)
