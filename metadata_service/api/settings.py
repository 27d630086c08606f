"""Settings of the metadata service."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.model.errors import ConfigError


@dataclass(frozen=True)
class ServiceSettings:
    """`database_url` is `sqlite:///FILE` or `postgresql+psycopg://...` (needs the extra `postgresql`).

    `poll_seconds` is how soon a waiting reader sees what another process wrote.
    """

    database_url: str
    poll_seconds: float = 0.04
    max_body_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.poll_seconds <= 0:
            raise ConfigError("metadata service: poll_seconds must be positive")
