"""Starting the profile service from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from fastapi import FastAPI

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.key_providers import ensure_keyring, provider_of
from idgraph.app.adapters.shared_state import household_log, is_embedded, open_documents
from idgraph.app.dead_letter_desk import dead_letter_desk
from idgraph.app.entrance import project_now
from idgraph.app.flow_progress import committed
from idgraph.app.jobs.threads import RESULTS, JobThreads
from idgraph.app.observation.json_logs import say
from idgraph.app.publish import publisher, topic_publisher
from idgraph.app.settings.document import Settings
from idgraph.app.settings.tables import TopicSettings, WebhookSettings
from idgraph.jobs.features.served import PAUSE_SECONDS, ServedLookups, sweep
from idgraph.model.flows import Flows
from idgraph.model.triggers import topic_receiver
from idgraph.repeating import Outage, Repeating
from idgraph.web.limits import RateLimit
from idgraph.web.metrics import log_requests, metrics_of_processes
from idgraph.web.server import Transport, secret_of_processes, serve, serve_by_processes, serving
from profile_service.api import person_tokens
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.api.households import Households
from profile_service.api.person_tokens import PersonTokens
from profile_service.api.rights import ConsentInput, Rights
from profile_service.api.triggers import Triggers
from profile_service.api.webhooks import Webhook, Webhooks
from profile_service.service import ProfileService
from sinks.http.webhook import WebhookSender
from sinks.kafka.feed import TopicSender

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
"""A caller gets the error so soon when the store is away: each that waits holds one of the service's threads."""


def serve_here(
    settings: Settings,
    host: str | None,
    port: int | None,
    command: Sequence[str] = (),
    processes: int = 1,
    descriptor: int | None = None,
) -> None:
    """Serve until the process is asked to stop, or by several processes of `command`; `descriptor` as of `serve`. Raises ConfigError,
    KeyProviderError, StoreError."""
    stated = settings.profiles
    host, port = host or stated.host, stated.port if port is None else port
    if stated.access_log:
        log_requests()
    transport = Transport(stated.certificate_file, stated.certificate_key_file, stated.allow_plain_http)

    def show(url: str) -> None:
        say(f"profile service on {url}, its interface on {url}/docs")

    if descriptor is not None:
        with application(settings, secret_of_processes()) as app:
            serve(app, host, port, None, transport, descriptor)
    elif processes > 1:
        with closing(open_documents(settings)) as documents:
            # Nothing can open those of an earlier start.
            for name in documents.names(f"{RESULTS}*") if is_embedded(settings) else ():
                documents.remove(name)
        with metrics_of_processes():
            serve_by_processes(command, processes, "the profile service", host, port, show, transport)
    else:
        with application(settings) as app:
            serve(app, host, port, show, transport)


@contextmanager
def serving_here(settings: Settings, port: int = 0) -> Iterator[str]:
    """Serve from a thread while the block runs; gives the URL."""
    with application(settings) as app, serving(app, "127.0.0.1", port) as url:
        yield url


@contextmanager
def application(settings: Settings, secret: bytes | None = None) -> Iterator[FastAPI]:
    """The service, while the block runs; `secret` is that of all its processes, if there are several. Raises ConfigError, KeyProviderError, StoreError."""
    ensure_keyring(settings)
    if settings.store.kind != "sqlite":
        # A pod's is empty. A store of files is in it, and no reader makes one.
        wiring.prepare_directory(settings)
    with ExitStack() as stack:
        adapters = stack.enter_context(wiring.opened_to_read(settings, RETRY_SECONDS))
        client = stack.enter_context(metadata_access.profiles_client(settings))

        def require_keys() -> None:
            wiring.require_own_keyring(settings, adapters, notes=False)

        require_keys()
        with Following(client) as following:
            audit_log = wiring.audit_log(settings)
            consents = stack.enter_context(_consent_input(settings))
            documents = stack.enter_context(closing(open_documents(settings, RETRY_SECONDS)))
            if not is_embedded(settings):
                # Other replicas show them too.
                secret = provider_of(settings).purpose_key("results of jobs")
            jobs = stack.enter_context(
                JobThreads(
                    settings,
                    lambda: following.edition()._replace(catalogue=following.catalogue),
                    client.protected_places,
                    secret,
                )
            )
            tokens = PersonTokens(provider_of(settings).purpose_key(person_tokens.PURPOSE))
            households = stack.enter_context(closing(household_log(settings)))
            own_households = Households(households, wiring.keyed_hash(adapters))
            desk = stack.enter_context(dead_letter_desk(settings))
            flows = Flows(documents)
            rights = Rights(consents, jobs, own_households, tokens, desk, flows)
            is_local = settings.store.kind == "sqlite"
            contact_paths = {str(k): paths for k, paths in settings.profiles.contact_attributes.items()}
            service = ProfileService(
                adapters,
                following,
                audit_log,
                require_keys,
                rights,
                is_local,
                committed(settings, flows),
                contact_paths,
                provider_of(settings).purpose_key("cursors"),
                partial(project_now, adapters, following),
            )
            service.documents = documents
            sweep(documents)
            if settings.profiles.checked_share:
                noted = ServedLookups(
                    documents, wiring.served_hashes(settings), settings.profiles.checked_share
                )
                outage = Outage("notes of look-ups")
                stack.enter_context(
                    Repeating(
                        "served look-ups",
                        noted.flush,
                        lambda error: outage.show_error(error, "some look-ups are not noted"),
                        pause=PAUSE_SECONDS,
                        last=noted.flush,
                    )
                )
                service.served = noted
            service.openid = metadata_access.single_sign_on(settings)
            hooks = [_webhook(stack, each) for each in settings.profiles.webhooks]
            feeds = [each for each in hooks if each.segment is not None]
            stack.enter_context(Webhooks(service, feeds, documents))
            topics = settings.profiles.topics
            feeds = [_topic(stack, settings, each) for each in topics if each.changes]
            stack.enter_context(Webhooks(service, feeds, documents))
            # Messages have producers of their own: a producer is for one thread.
            hooks += [_topic(stack, settings, each, topic_receiver(each.topic)) for each in topics]
            stack.enter_context(Triggers(service, hooks, documents))
            per_second = settings.profiles.requests_per_second
            yield create_app(
                service, RateLimit(per_second, max(1, int(2 * per_second))), settings.profiles.allowed_origins
            )


def _webhook(stack: ExitStack, stated: WebhookSettings) -> Webhook:
    sender = WebhookSender(stated.url, stated.secret_file, stated.allow_private, stated.ca_file)
    stack.callback(sender.close)
    return Webhook(stated.name, stated.segment, stated.clearance, sender)


def _topic(stack: ExitStack, settings: Settings, stated: TopicSettings, receiver: str = "") -> Webhook:
    user = f"[[profiles.topics]] {stated.topic}"
    opened = partial(topic_publisher, settings, user, stated.cluster == "pulsar")
    sender = TopicSender(opened, stated.topic)
    stack.callback(sender.close)
    if not receiver:
        sender.open()
    # The place in the feed is kept under this name.
    name = receiver or stated.topic.replace("/", ".")
    return Webhook(name, stated.segment, stated.clearance, sender, "topic")


@contextmanager
def _consent_input(settings: Settings) -> Iterator[ConsentInput]:
    name = settings.profiles.consent_source
    if name is None:
        yield ConsentInput()
        return
    event_type = settings.source(name).type.const
    with publisher(settings, name) as publish:
        yield ConsentInput(name, "consent" if event_type is None else str(event_type), publish)
