"""The admin REST interface of Pulsar: topics, their ledgers, and positions by time."""

from __future__ import annotations

import re
import ssl
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

from idgraph.model.errors import ConfigError, SourceUnavailableError
from idgraph.model.pulsar import WHOLE, PulsarSettings, partition_name, place, position
from idgraph.model.pulsar_ledgers import COMPACTED, Ledgers, StoredEntry, StoredLedger
from idgraph.model.transport import client_options
from sinks.credentials import secret_in

_OF_PULSAR = re.compile(r"/__|-__transaction|__change_events|-__")
_PARTITION = re.compile(r"-partition-(\d+)$")
_DOMAIN = "persistent://"
_MOST_REDIRECTS = 5


class HttpPulsarAdmin:
    """A `PulsarAdmin`. No message holds a token."""

    def __init__(self, settings: PulsarSettings) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._settings = settings
        options = client_options(settings.admin_url, settings.ca_file)
        if settings.certificate_file and options["verify"]:
            try:
                options["verify"].load_cert_chain(settings.certificate_file, settings.certificate_key_file)
            except OSError as error:
                raise ConfigError(f"[pulsar] certificate_file: {type(error).__name__}") from None
        headers = {}
        if settings.token_file:
            headers["Authorization"] = f"Bearer {secret_in(settings.token_file)}"
        self._client = httpx.Client(headers=headers, timeout=settings.answer_seconds, **options)
        self._partitioned: dict[str, bool] = {}
        self._has_transactions: bool | None = None
        self._readable_ends: dict[str, int] = {}

    def topics(self, namespace: str) -> set[str]:
        """As the protocol says."""
        found = {*self._listed(namespace, "/partitioned"), *self._listed(namespace, "")}
        names = {_PARTITION.sub("", each.removeprefix(_DOMAIN)) for each in found}
        return {each for each in names if not _OF_PULSAR.search(each)}

    def ledgers(self, topic: str) -> dict[int, Ledgers] | None:
        """As the protocol says."""
        if topic not in self._partitioned:
            found = self._get(f"{_path(topic)}/partitions")
            if found is None:
                return None
            self._partitioned[topic] = found["partitions"] > 0
        is_partitioned = self._partitioned[topic]
        stats = self._get(
            f"{_path(topic)}/{'partitioned-internalStats' if is_partitioned else 'internalStats'}"
        )
        if stats is None:
            # It may be created again in another way.
            self._partitioned.pop(topic, None)
            return None
        if not is_partitioned:
            return {WHOLE: self._readable(topic, WHOLE, _ledgers(stats))}
        parts = ((_PARTITION.search(name), each) for name, each in stats["partitions"].items())
        return {
            int(name[1]): self._readable(topic, int(name[1]), _ledgers(each))
            for name, each in parts
            if name is not None
        }

    def _readable(self, topic: str, partition: int, found: Ledgers) -> Ledgers:
        """Without what belongs to a transaction that is in progress, or comes after it."""
        name = partition_name(topic, partition)
        if self._has_transactions is None:
            self._has_transactions = (
                self._get("/admin/v3/transactions/coordinators", may_fail=True) is not None
            )
        if not self._has_transactions or self._readable_ends.get(name) == found.end:
            return found
        buffered = self._get(f"/admin/v3/transactions/transactionBufferStats/{name}", may_fail=True)
        if buffered is None:
            return found
        ledger, entry = map(int, buffered["maxReadPosition"].split(":"))
        end = min(found.end, position(ledger, entry + 1))
        self._readable_ends[name] = end
        return found._replace(end=end)

    def entry(self, topic: str, partition: int, at: int) -> StoredEntry:
        """As the protocol says."""
        ledger, entry = place(at)
        name = partition_name(topic, partition)
        answer = self._asked("HEAD", f"{_path(name)}/ledger/{ledger}/entry/{entry}")
        if not answer.is_success:
            raise SourceUnavailableError(
                f"Pulsar does not say what {name}, {ledger}/{entry} is (HTTP {answer.status_code})"
            )
        said = answer.headers
        chunks = int(said.get("X-Pulsar-num-chunks-from-msg", 0))
        return StoredEntry(
            published=datetime.fromisoformat(said["X-Pulsar-publish-time"]).timestamp(),
            messages=int(said.get("X-Pulsar-num-batch-message", 1)),
            is_chunk=chunks > 0,
            is_last=chunks > 0 and int(said["X-Pulsar-chunk-id"]) == chunks - 1,
            is_of_transaction="X-Pulsar-marker-type" in said or said.get("X-Pulsar-txn-aborted") == "true",
        )

    def at(self, topic: str, partition: int, epoch_ms: int) -> int:
        """As the protocol says."""
        name = partition_name(topic, partition)
        found = self._get(f"{_path(name)}/messageid/{epoch_ms}")
        if found is None:
            raise ConfigError(f"there is no topic {name} in Pulsar")
        return position(found["ledgerId"], found["entryId"])

    def schema(self, topic: str, version: int) -> dict[str, Any] | None:
        """A version of a topic's schema, with `type` and `data`; None if there is none. Raises as `ledgers`."""
        found: dict[str, Any] | None = self._get(
            f"schemas/{_path(topic).removeprefix('persistent/')}/schema/{version}"
        )
        return found

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _listed(self, namespace: str, kind: str) -> list[str]:
        found = self._get(f"persistent/{namespace}{kind}")
        if found is None:
            raise ConfigError(
                f"there is no namespace {namespace} in Pulsar; create it, or correct `namespace` of the source"
            )
        return list(found)

    def _asked(self, method: str, path: str) -> httpx.Response:
        url = self._settings.admin_url.rstrip("/") + (path if path.startswith("/") else f"/admin/v2/{path}")
        try:
            answer = self._client.request(method, url)
            for _ in range(_MOST_REDIRECTS):
                # To the broker that has the topic, which wants the token too.
                if answer.next_request is None:
                    break
                answer = self._client.request(method, answer.next_request.url)
        except httpx.HTTPError as error:
            raise self._failed(error) from None
        return answer

    def _get(self, path: str, may_fail: bool = False) -> Any:
        """The answer; None for 404, and with `may_fail` for every refusal."""
        answer = self._asked("GET", path)
        if answer.is_success:
            return answer.json()
        if may_fail and answer.status_code != httpx.codes.UNAUTHORIZED:
            return None
        reason = _reason(answer)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        where = f"Pulsar's admin interface {self._settings.admin_url}"
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"{where} refuses {path.removesuffix('/partitions')} (HTTP {answer.status_code}); check [pulsar] token_file or "
                "certificate_file, and that its role may consume the topics (`pulsar-admin namespaces grant-permission`)"
            )
        raise SourceUnavailableError(f"{where} failed (HTTP {answer.status_code}: {reason})")

    def _failed(self, error: httpx.HTTPError) -> ConfigError | SourceUnavailableError:
        where = f"Pulsar's admin interface {self._settings.admin_url}"
        if "CERTIFICATE_VERIFY_FAILED" in str(error) or isinstance(error.__cause__, ssl.SSLError):
            return ConfigError(
                f"{where} has a certificate that is not trusted; set [pulsar] ca_file to the authority that signed it"
            )
        if self._settings.certificate_file and "_ALERT_" in str(error):
            return ConfigError(
                f"{where} does not trust the certificate in [pulsar] certificate_file; have an authority sign it that is in "
                "`tlsTrustCertsFilePath` of the brokers"
            )
        return SourceUnavailableError(
            f"{where} does not answer ({type(error).__name__}); start Pulsar, or correct [pulsar] admin_url"
        )


def _path(topic: str) -> str:
    return "persistent/" + "/".join(quote(part, safe="") for part in topic.split("/"))


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("reason"))[:200]
    except (ValueError, AttributeError):
        return "no reason given"


def _ledgers(stats: dict[str, Any]) -> Ledgers:
    """Of the answer `internalStats`, in which the open ledger, the last, is counted apart."""
    found = [StoredLedger(each["ledgerId"], each["entries"], each["size"]) for each in stats["ledgers"]]
    ledger, entry = map(int, stats["lastConfirmedEntry"].split(":"))
    if found:
        found[-1] = StoredLedger(found[-1].id, stats["currentLedgerEntries"], stats["currentLedgerSize"])
    compacted = stats["compactedLedger"]
    if compacted["entries"] > 0:
        found.insert(0, StoredLedger(COMPACTED, compacted["entries"], compacted["size"]))
    # Written and not confirmed yet counts for the next look.
    return Ledgers(tuple(found), position(ledger, entry + 1))
