"""Where a search goes on: behind an id, in a form that says nothing to who passes it on."""

from __future__ import annotations

import base64
import binascii
import hashlib

from idgraph.model.errors import QueryError

_DIGEST = 6


def cursor_after(document_id: str) -> str:
    """An opaque cursor that goes on behind this id."""
    data = document_id.encode()
    return base64.urlsafe_b64encode(_digest(data) + data).decode()


def read_cursor(cursor: str) -> str:
    """The id behind which to go on. Raises QueryError for what `cursor_after` did not make."""
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        digest, after = data[:_DIGEST], data[_DIGEST:]
        if digest == _digest(after):
            return after.decode()
    except (binascii.Error, UnicodeError):
        pass
    raise QueryError("the cursor is not one that this index gave out")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"cursor" + data).digest()[:_DIGEST]
