"""idgraph: one private profile per person, out of events from many systems.

`open` reads profiles, `publish` sends events, `compile_spec` maps them; docs/python.md shows both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from idgraph.model.errors import (
    ConfigError,
    IdgraphError,
    KeyProviderError,
    MetadataError,
    ProfileIndexError,
    PublishError,
    QueryError,
    SpecError,
    StoreError,
    TransformError,
)

if TYPE_CHECKING:
    from idgraph.app.publish import publish
    from idgraph.app.reader import Page, Profiles, Reader, open  # noqa: A004 - as in `gzip.open`
    from idgraph.model.identifiers import Identifier
    from profile_service.reader import Profile
    from transforms.spec.compiler import compile_spec

    __version__: str

__all__ = [
    "ConfigError",
    "Identifier",
    "IdgraphError",
    "KeyProviderError",
    "MetadataError",
    "Page",
    "Profile",
    "ProfileIndexError",
    "Profiles",
    "PublishError",
    "QueryError",
    "Reader",
    "SpecError",
    "StoreError",
    "TransformError",
    "__version__",
    "compile_spec",
    "open",
    "publish",
]

_LATE = {
    "Identifier": "idgraph.model.identifiers",
    "Page": "idgraph.app.reader",
    "Profile": "profile_service.reader",
    "Profiles": "idgraph.app.reader",
    "Reader": "idgraph.app.reader",
    "compile_spec": "transforms.spec.compiler",
    "open": "idgraph.app.reader",
    "publish": "idgraph.app.publish",
}
"""Names that are loaded when first used, and their modules: importing idgraph loads none of them."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("idgraph")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
