"""The blind index: keyed hashes that answer equality and nothing else."""

from __future__ import annotations

import re
import unicodedata
from binascii import b2a_base64
from decimal import Decimal
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from idgraph.model import canonical
from idgraph.model.attributes import DataType
from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from transforms.privacy.keys import KeyProvider, NotPicklable

PURPOSE = "blind-index"
MAX_NAMES = 4096

_TOKEN_BYTES = 16
_TOKEN_CHARACTERS = 22
_HASHED = re.compile(re.escape(HASHED_PREFIX) + r"[A-Za-z0-9_-]{21}[AQgw]")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_NUMBERS = (DataType.INTEGER, DataType.NUMBER)


class BlindIndex(NotPicklable):
    """Tokens of values: HMAC-SHA-256 under the purpose key `blind-index`, cut to 128 bits, base64url
    without padding (22 characters).

    Among n distinct values of one attribute two share a token with probability n²/2^129: 1.5e-21 for a
    billion values. Without the key neither a value can be tested against a token nor the other way round.
    With the index alone one sees which profiles share a value of one attribute, and how often.

    The attribute's path, or the identifier's type, is hashed with the value: equal values under different
    names have unrelated tokens. Safe for several threads.
    """

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        key = provider.purpose_key(PURPOSE)

        def start(domain: bytes, name: str) -> HMAC:
            encoded = _utf8(name)
            started = HMAC(key, SHA256())
            started.update(b"%b %d:%b" % (domain, len(encoded), encoded))
            return started

        # A hash that has read the name already; copying it costs half of what a new one does.
        self._start = lru_cache(MAX_NAMES)(start)

    def token(self, name: str, value: Any, data_type: DataType) -> str:
        """The token of a value of the attribute `name`, read as `data_type` where it can be.

        Equal after normalisation means equal token: text regardless of case, compatibility forms (Unicode
        NFKC) and outer white space; numbers by value (42, 42.0 and 4.2e1); an array as a whole. Text,
        numbers and booleans never share a token.
        """
        return self._token(b"attribute", name, normalise(value, data_type))

    def identifier(self, identifier: Identifier) -> Identifier:
        """An identifier of ours, as stored or as somebody asks for it: hashed, unless its value has the form of a hash."""
        return identifier if is_hashed(identifier.value) else self.hashed(identifier)

    def hashed(self, identifier: Identifier) -> Identifier:
        """The identifier with its value hashed, also one that an event brings in the form of a hash: whoever knows the hash
        of a person must not pass as that person.

        The value is hashed exactly as it stands: whether policy protects an identifier must not change
        who is who, and ids that differ by case alone may be two persons. Specs normalise where that is
        wanted.
        """
        token = self._token(b"identifier", identifier.type, _utf8(identifier.value))
        return Identifier(identifier.type, HASHED_PREFIX + token)

    def file_name(self, name: str) -> str:
        """The name of a source file that may not be shown."""
        return HASHED_PREFIX + self._token(b"file", "", _utf8(name))

    def _token(self, domain: bytes, name: str, content: bytes) -> str:
        keyed = self._start(domain, name).copy()
        keyed.update(content)
        short = b2a_base64(keyed.finalize()[:_TOKEN_BYTES], newline=False)[:_TOKEN_CHARACTERS]
        return short.translate(_URL_SAFE).decode("ascii")


def is_hashed(value: str) -> bool:
    """Whether an identifier's value has the exact form of a hash."""
    return _HASHED.fullmatch(value) is not None


def normalise(value: Any, data_type: DataType) -> bytes:
    """A value in the form whose equality the blind index answers; a dead letter for its kind comes first."""
    value = _read_as(value, data_type)
    if type(value) is str:
        return b"s" + _utf8(_fold(value))
    if type(value) is bool:
        return b"b1" if value else b"b0"
    if type(value) in (int, float, Decimal):
        return b"n" + _number(value).encode("ascii")
    return b"j" + canonical.encode(value)


def _read_as(value: Any, data_type: DataType) -> Any:
    # A search may bring text where events bring numbers, and the other way round.
    if type(value) is str:
        if data_type in _NUMBERS or data_type is DataType.BOOLEAN:
            try:
                read = canonical.decode(value)
            except (*canonical.MalformedJSON, ArithmeticError):
                return value
            wanted = (bool,) if data_type is DataType.BOOLEAN else (int, float, Decimal)
            return read if type(read) in wanted else value
    elif data_type is DataType.STRING and type(value) in (int, float, Decimal, bool):
        return canonical.encode(value).decode()
    return value


def _fold(text: str) -> str:
    if text.isascii():
        return text.strip().lower()
    # Unicode's compatibility caseless matching (D146): folding can undo normal forms and be undone by them.
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFD", text).casefold()).casefold()
    return unicodedata.normalize("NFKC", text).strip()


def _number(value: float | Decimal) -> str:
    sign, digits, exponent = Decimal(repr(value) if type(value) is float else value).as_tuple()
    if isinstance(exponent, str):
        return exponent  # not finite; JSON has no such number
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return "0"
    return f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}"


def _utf8(text: str) -> bytes:
    # Command-line arguments may hold lone surrogates; an encoding error would quote the value.
    return text.encode("utf-8", "surrogatepass")
