"""Adapters that come with an extra of the installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from idgraph.model.errors import ConfigError


@contextmanager
def needing(extra: str, message: str) -> Iterator[None]:
    """Around imports of what an extra installs. Raises ConfigError: what needs it, and the command that installs it."""
    try:
        yield
    except ModuleNotFoundError:
        from idgraph.app.package import install_command

        raise ConfigError(f"{message}; install it with `{install_command(extra)}`") from None
