"""Lists in pages. A cursor is opaque to its holder: it says where the next page begins."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from pydantic import BaseModel

from idgraph.web.refusals import BadQueryError

Item = TypeVar("Item")
Key = TypeVar("Key", str, int)


class ListPage(BaseModel, Generic[Item]):
    """Some items of a list; `next` is the cursor of the following page, null on the last."""

    items: list[Item]
    next: str | None = None


class PageRequest(NamedTuple):
    """The requested page of a list."""

    cursor: str | None
    limit: int

    @property
    def one_more(self) -> int:
        """The number of items to look for: one beyond the page says that another follows."""
        return self.limit + 1

    def after(self, kind: type[Key]) -> Key | None:
        """The key after which the page begins, None at the start. Raises BadQueryError."""
        return from_cursor(self.cursor, kind) if self.cursor else None

    def page(self, found: Iterable[Item], key: Callable[[Item], str | int]) -> ListPage[Item]:
        """The page out of up to `one_more` items. `key` is what its list is ordered by."""
        items = list(found)
        if len(items) <= self.limit:
            return ListPage(items=items)
        shown = items[: self.limit]
        return ListPage(items=shown, next=to_cursor(key(shown[-1])))


def to_cursor(last: str | int) -> str:
    """The cursor of what follows the item with this key."""
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode().rstrip("=")


def from_cursor(cursor: str, kind: type[Key]) -> Key:
    """The key within a cursor. Raises BadQueryError if it is not a cursor of this kind of list."""
    try:
        last = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        str(last).encode()  # no lone surrogates
    except (ValueError, binascii.Error, RecursionError) as error:
        raise BadQueryError("the cursor cannot be read; start again without one") from error
    # A bool is an int, and SQLite has no number beyond 64 bits.
    if type(last) is not kind or (isinstance(last, int) and abs(last) >= 2**63):
        raise BadQueryError("the cursor belongs to another list; start again without one")
    return last


class SealedCursors:
    """Cursors of others, sealed: they hold ids that their holder may not see, and an index believes what they say. AES-SIV
    (RFC 5297); `kind` is the associated data."""

    def __init__(self, key: bytes) -> None:
        """`key` has 64 bytes."""
        self._cipher = AESSIV(key)

    def seal(self, cursor: str, kind: str, salt: bytes = b"") -> str:
        """With a random `salt`, of 8 bytes, equal cursors look different."""
        sealed = self._cipher.encrypt(salt + cursor.encode(), [kind.encode()])
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, cursor: str, kind: str, salted: bool = False) -> str:
        """Raises BadQueryError."""
        try:
            sealed = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            return self._cipher.decrypt(sealed, [kind.encode()])[8 if salted else 0 :].decode()
        except (ValueError, InvalidTag):
            raise BadQueryError("the cursor is of another search; start again without one") from None
