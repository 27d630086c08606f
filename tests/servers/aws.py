"""The common parts of all clients of Amazon's services in tests."""

from __future__ import annotations

import functools


@functools.cache
def read_descriptions_once() -> None:
    """A session of botocore parses the descriptions of services, which takes most of a short test; tests open hundreds."""
    import botocore.session

    botocore.session.create_loader = functools.cache(botocore.session.create_loader)
