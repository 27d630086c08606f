"""Reaching the metadata service: tokens, clients, and the newest snapshot that there is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.model.errors import ConfigError, MetadataError, UnauthorizedError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.attributes import Catalogue
    from idgraph.model.snapshots import PinnedSnapshot
    from idgraph.signatures import PinnedKey
    from idgraph.web.openid import OpenId
    from sinks.http.metadata import MetadataClient

log = logging.getLogger(__name__)

QUICK_SECONDS = 2.0
"""The longest wait of a command that only reads for the metadata service, before it uses the last
snapshot."""


def metadata_client(settings: Settings, timeout: float = 10.0) -> MetadataClient:
    """The metadata service's client, for a person's command. Raises ConfigError when there is no token."""
    return _metadata_client(settings, metadata_token(settings), timeout)


def flow_client(settings: Settings) -> MetadataClient:
    """The same with the flow's own token, for a flow's requests; it is read again when it is refused."""
    return _metadata_client(settings, flow_token(settings), 10.0, partial(flow_token, settings))


def profiles_client(settings: Settings) -> MetadataClient:
    """The same with the profile service's own token."""
    return _metadata_client(settings, profiles_token(settings), 10.0, partial(profiles_token, settings))


def reading_client(settings: Settings, timeout: float = 10.0) -> MetadataClient:
    """The same with any token that there is, for commands that only read."""
    return _metadata_client(settings, _reading_token(settings), timeout)


def _metadata_client(
    settings: Settings, token: str, timeout: float, renewed: Callable[[], str] | None = None
) -> MetadataClient:
    from sinks.http.metadata import MetadataClient

    stated = settings.metadata
    return MetadataClient(stated.url, token, timeout, stated.ca_file, pinned_key(settings), renewed)


def single_sign_on(settings: Settings) -> OpenId | None:
    """The issuer of `[oidc]`, if there is one. Raises ConfigError."""
    from idgraph.model.callers import Role
    from idgraph.web.openid import ClaimRule, OpenId, OpenIdConfig
    from sinks.credentials import secret
    from sinks.http.openid import HttpIssuer

    stated = settings.oidc
    if stated.issuer is None:
        return None
    rules = [
        ClaimRule(
            each.claim, each.value, Role(each.role), each.clearance, each.reveal, frozenset(each.scopes)
        )
        for each in stated.rules
    ]
    file = stated.client_secret_file
    own = secret("IDGRAPH_OIDC_CLIENT_SECRET", None if file is None else str(file))
    config = OpenIdConfig(
        stated.issuer,
        stated.client_id,
        rules,
        stated.audience,
        own,
        stated.name_claim,
        stated.redirect_url,
        stated.title,
    )
    return OpenId(config, HttpIssuer(stated.ca_file))


def pinned_key(settings: Settings) -> PinnedKey:
    """The metadata service's key, as it is known here."""
    from idgraph.signatures import PinnedKey

    return PinnedKey(settings.directory / "metadata.pub", settings.metadata.public_key)


def metadata_token(settings: Settings) -> str:
    """A person's token, from the configuration, the environment or its file. Each of these raises ConfigError
    when there is none, UnauthorizedError for a text that cannot be a token: no service is asked with it."""
    return _token(settings, settings.metadata.token, settings.token_file(), _METADATA_TOKEN, "admin")


def flow_token(settings: Settings) -> str:
    """The flow's token."""
    return _token(settings, settings.metadata.token, settings.flow_token_file(), _METADATA_TOKEN, "pipeline")


def _reading_token(settings: Settings) -> str:
    of_person = settings.token_file().exists() or not settings.flow_token_file().exists()
    return metadata_token(settings) if of_person else flow_token(settings)


def profiles_token(settings: Settings) -> str:
    """The token of the profile service, by which it reads the metadata and who its callers are."""
    return _token(
        settings,
        settings.profiles.token,
        settings.profiles_token_file(),
        "IDGRAPH_PROFILES__TOKEN",
        "service",
    )


_METADATA_TOKEN = "IDGRAPH_METADATA__TOKEN"  # noqa: S105 - a variable's name


def _token(settings: Settings, stated: str | None, file: Path, variable: str, role: str) -> str:
    place, found = variable, stated
    if not found:
        place = str(file)
        try:
            found = file.read_text(encoding="ascii")
        except FileNotFoundError:
            settings.require_folder()
            raise ConfigError(
                f"no token for the metadata service: there is no file {file}. The first start of `idgraph serve metadata` "
                f"makes one; later `idgraph tokens add NAME --role {role} > {file}` does; or set {variable}"
            ) from None
        except UnicodeDecodeError:
            found = "\0"
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
    token = found.strip()
    if not token or not all("!" <= each <= "~" for each in token):
        wrong = (
            "is more than a token"
            if token
            else "the token is empty"
            if place == variable
            else "the token file is empty"
        )
        raise UnauthorizedError(
            f"{place}: {wrong}; `idgraph tokens add NAME --role {role}` prints one"
            + ("" if place == variable else f", and `> {file}` writes it there")
        )
    return token


def snapshot_file(settings: Settings) -> Path:
    """The file in which the flow keeps its last snapshot."""
    return settings.flow_state() / "snapshot.json"


def schema_journal(settings: Settings) -> Path:
    """The file in which the flow keeps schema changes that the metadata service has not taken yet."""
    return settings.flow_state() / "schema-changes.jsonl"


def newest_snapshot(settings: Settings) -> PinnedSnapshot | None:
    """The service's snapshot, or when it is away the flow's last one; the first with a catalogue that is read when it is needed."""
    from idgraph.snapshot_file import kept_snapshot

    try:
        with reading_client(settings, QUICK_SECONDS) as client:
            found = client.snapshot()
        if found is not None:
            return found._replace(
                catalogue=cache(partial(_catalogue, settings)), model=partial(_model, settings)
            )
    except ConfigError as error:
        log.debug("%s", error)
    except MetadataError as error:
        log.warning(
            "%s; continuing with what the flow saw last, which has no attributes that nobody declared", error
        )
    return kept_snapshot(snapshot_file(settings))


def _catalogue(settings: Settings) -> Catalogue:
    with reading_client(settings, QUICK_SECONDS) as client:
        found = client.catalogue()
    if found is None:
        raise MetadataError("the metadata service gave no catalogue")
    return found[0]


def _model(settings: Settings, digest: str) -> bytes | None:
    with reading_client(settings, QUICK_SECONDS) as client:
        return client.model(digest)


def snapshot_to_read_by(settings: Settings) -> PinnedSnapshot:
    """The newest snapshot, or if there is none at all one under which every value is protected."""
    from idgraph.model.attributes import EncryptionLevel
    from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot, PinnedSnapshot

    found = newest_snapshot(settings)
    if found is None:
        sealed = DiscoveryDefaults(encryption=EncryptionLevel.PROTECTED, indexable=False)
        found = PinnedSnapshot("", MetadataSnapshot(version=0, defaults=sealed))
    return found
