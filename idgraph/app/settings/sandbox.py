"""The settings of a sandbox: those of production with a directory, keys, ports and tokens of its own."""

from __future__ import annotations

from urllib.parse import urlsplit

from idgraph.app.settings.document import MetadataSettings, Settings
from idgraph.app.settings.tables import KeySettings, MetricsSettings, OidcSettings, ProfilesSettings
from idgraph.model.errors import ConfigError
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.sandboxes.folder import SandboxFolder

PORTS = 100
"""Between the ports of two sandboxes."""


def in_sandbox(settings: Settings, name: str) -> Settings:
    """The same sources; on this machine only, without webhooks, consents, single sign-on and tokens of production. Raises
    ConfigError for an unknown name."""
    place = settings.sandboxes()
    if place is None:
        raise ConfigError(
            "--sandbox: sandboxes need the embedded store and index ([store] and [index] kind sqlite)"
        )
    folder = SandboxFolder(place)
    try:
        shift = folder.get(name).number * PORTS
    except UnknownSubjectError as error:
        raise ConfigError(f"--sandbox {name}: {error}; `idgraph sandboxes create NAME` makes one") from None
    metadata, profiles = settings.metadata, settings.profiles
    url = f"http://127.0.0.1:{_port(urlsplit(metadata.url).port or 8410, shift)}"
    own_profiles = profiles.model_dump(
        include={"download_hours", "contact_attributes", "requests_per_second"}
    )
    found = settings.model_copy(
        update={
            "directory": folder.place(name),
            "keyring": None,
            "keys": KeySettings(**settings.keys.model_dump() | {"backup_days": None}),
            "metadata": MetadataSettings(
                url=url,
                max_updates=metadata.max_updates,
                schema_update_interval=metadata.schema_update_interval,
            ),
            "profiles": ProfilesSettings(port=profiles.port and _port(profiles.port, shift), **own_profiles),
            "oidc": OidcSettings(),
            "metrics": MetricsSettings(),
        }
    )
    found._sandbox, found._production = name, settings
    return found


def _port(port: int, shift: int) -> int:
    return port + shift if port + shift < 65536 else port - shift
