"""Envelopes of AWS KMS around the secrets of a keyring.

A secret is 64 bytes that KMS makes (`GenerateDataKeyWithoutPlaintext`), or encrypts if there is one already; the
keyring holds KMS's ciphertext. The encryption context, which KMS authenticates and writes to its log, is
`idgraph-keyring` (the keyring's id) and `idgraph-secret` (`root`, `key-VERSION`): a ciphertext opens in its place
only, and the log shows which secret was opened, never for whom.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from idgraph.model.errors import KeyProviderError, KeyServiceError
from sinks.aws_connection import Retry, client
from sinks.keyring.content import SECRET_BYTES, SecretName
from transforms.privacy.keys import Secret

_THREADS = 4
_TIMEOUT = 5.0

_TRANSIENT = frozenset(
    {
        "DependencyTimeoutException",
        "InternalFailure",
        "KeyUnavailableException",
        "KMSInternalException",
        "LimitExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    }
)

_ALTERED = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})

_MEANING = {
    "AccessDeniedException": "access denied; see the permissions in docs/security.md",
    "DisabledException": "the key is disabled",
    "ExpiredTokenException": "the credentials have expired",
    "KMSInvalidStateException": "the key is pending deletion, or otherwise not to be used",
    "NotFoundException": "there is no such key",
    "UnrecognizedClientException": "the credentials are not valid",
}


class KmsKey(NamedTuple):
    """A KMS key and its place. No `endpoint` means Amazon's own of the region."""

    key: str
    region: str
    endpoint: str | None = None


class KmsEnvelope:
    """An `Envelope` under one KMS key. A request that KMS throttles, or does not answer, is made again for
    `retry_seconds`."""

    format = "idgraph-kms-keyring"
    has_id = True
    stored_bytes: int | None = None

    def __init__(
        self,
        key: KmsKey,
        keep_seconds: float = 300.0,
        keep_uses: float = 1_000_000,
        retry_seconds: float = 10.0,
    ) -> None:
        self.keep_seconds = keep_seconds
        self.keep_uses = keep_uses
        self._key = key
        self._retry_seconds = retry_seconds
        self._client: Any = None
        self._lock = threading.Lock()

    def new(self, name: SecretName) -> bytes:
        """KMS's ciphertext; the secret itself does not come here."""
        operation = "generate_data_key_without_plaintext"
        return self._call(operation, "CiphertextBlob", name, NumberOfBytes=SECRET_BYTES)

    def seal(self, secret: Secret, name: SecretName) -> bytes:
        """KMS's ciphertext."""
        return self._call("encrypt", "CiphertextBlob", name, Plaintext=secret.reveal())

    def open(self, stored: bytes, name: SecretName) -> Secret:
        """The secret that KMS decrypts."""
        return Secret(self._call("decrypt", "Plaintext", name, CiphertextBlob=stored))

    def _call(self, operation: str, wanted: str, name: SecretName, **request: Any) -> bytes:
        """One field of the answer."""
        place = f"KMS key {self._key.key}"
        retry = Retry(place, self._retry_seconds, KeyServiceError)
        context = {"idgraph-keyring": name.keyring, "idgraph-secret": name.secret}
        while True:
            try:
                call = getattr(self._opened(), operation)
                content: bytes = call(KeyId=self._key.key, EncryptionContext=context, **request)[wanted]
                return content
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code"))
                # Something between here and KMS may answer by a status alone.
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            except (BotoCoreError, ValueError) as error:
                # No connection, or half an answer.
                code, status = type(error).__name__, 500
            if code in _ALTERED:
                raise KeyProviderError(
                    f"{place}: the keyring's secret {name.secret} was altered, or belongs to another keyring or KMS key"
                )
            if code not in _TRANSIENT and status < 500:
                raise KeyServiceError(f"{place}: {_MEANING.get(code, code)}")
            retry.pause(code)

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = client("kms", self._key.region, self._key.endpoint, _THREADS, _TIMEOUT)
            return self._client
