"""The folder of `idgraph dev up`: a configuration that is made once and is the developer's from then on, and beside it
what each server keeps."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from idgraph.app.settings.document import Settings, load
from idgraph.model.errors import ConfigError

CONFIG = "idgraph.toml"
_PART = ".idgraph.toml.part"

_TEXT = """\
# Made by `idgraph dev up`, and yours to edit: it is read again at the next start. Topics that are missing are made.
directory = "state"

[metadata]
url = "http://127.0.0.1:{metadata}"

[kafka]
bootstrap_servers = "127.0.0.1:{kafka}"

[store]
kind = "dynamodb"
region = "eu-central-1"
endpoint = "http://127.0.0.1:{dynamodb}"

[index]
kind = "elasticsearch"
url = "http://127.0.0.1:{elasticsearch}"
replicas = 0

[flow]
name = "dev"

# The web shop of `idgraph demo`: its web site, its mobile app, its order system.
[[sources]]
name = "segment"
kind = "kafka"
topics = ["segment"]
type = {{ path = "type" }}

[[sources]]
name = "amplitude"
kind = "kafka"
topics = ["amplitude"]
type = {{ path = "event_type" }}

[[sources]]
name = "orders"
kind = "kafka"
topics = ["orders"]
type = {{ const = "order" }}
"""


class DevFolder:
    """Where the servers keep what they have, and where they listen, which the configuration says."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the configuration was edited to something that these servers are not."""
        self.path = path
        self.config = path / CONFIG
        if not self.config.exists():
            _make(self.config)
        self.settings = load(self.config)
        _require_here(self.config, self.settings)

    def data(self, server: str) -> Path:
        """What a server keeps."""
        return self.path / server

    def ports(self) -> dict[str, int]:
        """By server."""
        settings = self.settings
        urls = {
            "metadata": settings.metadata.url,
            "kafka": f"kafka://{settings.kafka.bootstrap_servers}",
            "dynamodb": settings.store.endpoint or "",
            "elasticsearch": settings.index.url,
        }
        return {name: urlsplit(url).port or 0 for name, url in urls.items()}


def make_folder(path: Path) -> None:
    """For its owner only. Raises ConfigError for one that holds something else."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        others = [entry.name for entry in path.iterdir() if entry.name not in ("lock", _PART)]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if others and CONFIG not in others:
        raise ConfigError(f"{path} is not empty ({others[0]}) and has no {CONFIG}; give another --directory")


def _make(config: Path) -> None:
    part = config.with_name(_PART)
    part.write_text(_TEXT.format(**_free_ports("metadata", "kafka", "dynamodb", "elasticsearch")))
    part.replace(config)


def _free_ports(*names: str) -> dict[str, int]:
    with ExitStack() as held:
        # All at once: one that is let go may be retried.
        taken = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: one.getsockname()[1] for name, one in zip(names, taken, strict=True)}


def _require_here(config: Path, settings: Settings) -> None:
    if (settings.store.kind, settings.index.kind) != ("dynamodb", "elasticsearch"):
        raise ConfigError(
            f"{config}: `idgraph dev up` is for [store] kind dynamodb and [index] kind elasticsearch"
        )
    places = {
        "[metadata] url": settings.metadata.url,
        "[kafka] bootstrap_servers": f"kafka://{settings.kafka.bootstrap_servers}",
        "[store] endpoint": settings.store.endpoint or "",
        "[index] url": settings.index.url,
    }
    for key, url in places.items():
        parts = urlsplit(url)
        if parts.hostname not in ("127.0.0.1", "localhost") or not parts.port:
            # Nothing is to be started in the place of a server that others use.
            raise ConfigError(f"{config}: {key}: `idgraph dev up` starts servers on 127.0.0.1:PORT only")
