"""The tables of `idgraph.toml` that several parts read: keys, metrics, URLs, sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from idgraph.model.callers import Scope
from idgraph.model.documents import TOPIC_PATTERN, SettingsTable
from idgraph.model.kafka import KafkaSettings, KafkaSource
from idgraph.model.pulsar import PulsarSource
from idgraph.model.sources import FileSource
from idgraph.model.topics import TopicSource
from idgraph.model.transport import is_private


class KeySettings(SettingsTable):
    """The service that wraps the keys of the keyring, and retries during its outage."""

    kind: Literal["file", "kms"] = Field(
        default="file",
        description="`file`: the keyring contains the keys. `kms`: it contains them encrypted by AWS KMS "
        "([security.md](security.md#keys-in-aws-kms)).",
    )
    kms_key: str | None = Field(default=None, min_length=1, description="ARN or id of the KMS key.")
    region: str | None = Field(default=None, description="AWS region of the KMS key.")
    endpoint: Annotated[str | None, AfterValidator(lambda url: url and without_credentials(url))] = Field(
        default=None, description="URL of another KMS."
    )
    cache_seconds: float = Field(
        default=300.0, gt=0, description="Seconds after which a process requests a key from KMS again."
    )
    cache_uses: int = Field(
        default=1_000_000,
        ge=1,
        description="Number of data keys after which a process requests a key from KMS again.",
    )
    retry_seconds: float = Field(
        default=10.0,
        ge=0,
        description="Seconds of retries when KMS throttles or does not answer.",
    )
    backup_days: int | None = Field(
        default=None,
        ge=0,
        description="Days for which you keep backups of the data keys and of the keys of dead letters. The receipt of an "
        "erasure then names the day from which the erasure holds in backups too.",
    )

    @model_validator(mode="after")
    def _has_place(self) -> KeySettings:
        if self.kind == "kms" and not (self.kms_key and self.region):
            raise ValueError("KMS needs a `kms_key` and its `region`, for instance eu-central-1")
        return self


class MetricsSettings(SettingsTable):
    """Address of the metrics and health of a running flow."""

    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of `/metrics`, `/health/live` and `/health/ready` while the flow runs. Default: none.",
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. The pages contain no values and need no password.",
    )


class WebhookSettings(SettingsTable):
    """A receiver of the profiles that enter, leave and change in a segment, or of the messages of triggers."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]{0,63}$", description="Begins each delivery's id.")
    segment: str | None = Field(
        default=None,
        min_length=1,
        description="The segment. Default: it gets the messages of triggers alone.",
    )
    url: str = Field(min_length=1, description="`https://...`, or `http://` to this machine.")
    secret_file: Path = Field(description="File with the signing secret: `whsec_` and base64.")
    clearance: int = Field(default=0, ge=0, le=100, description="As whom it sees the segment and ids.")
    allow_private: bool = Field(default=False, description="Whether a private address may be connected to.")
    ca_file: Path | None = Field(
        default=None, description="PEM file of trusted authorities. Default: the system's."
    )


class TopicSettings(SettingsTable):
    """A topic of the cluster of `[kafka]` or `[pulsar]` that gets the feed of changes, or the messages of triggers."""

    topic: str = Field(
        pattern=TOPIC_PATTERN,
        description="Its name; in Pulsar `TENANT/NAMESPACE/TOPIC`.",
    )
    cluster: Literal["kafka", "pulsar"] = Field(default="kafka", description="The cluster that has it.")
    segment: str | None = Field(
        default=None, min_length=1, description="Only what the feed says of it. Default: all."
    )
    changes: bool = Field(
        default=True, description="Whether it gets the feed. Without, it gets the messages of triggers alone."
    )
    clearance: int = Field(default=0, ge=0, le=100, description="As whom it sees segments and ids.")


def web_origin(origin: str) -> str:
    """The origin of a web page, as browsers write it. Raises ValueError for anything else."""
    try:
        parts = urlsplit(origin)
        is_origin = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        is_origin = is_origin and origin == f"{parts.scheme}://{parts.netloc}" and "@" not in origin
    except ValueError:
        is_origin = False
    if not is_origin or origin != origin.lower():
        raise ValueError(
            "not the origin of a web page; it looks like https://HOST or https://HOST:PORT, without a path"
        )
    return origin


class ProfilesSettings(SettingsTable):
    """The profile service."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address of `idgraph serve profiles`.")
    port: int = Field(default=8420, ge=0, le=65535, description="Its port; 0 takes a free one.")
    url: Annotated[str | None, AfterValidator(lambda url: url and http_url(url))] = Field(
        default=None,
        description="Address at which the pages of the metadata service, and `idgraph lookup` and `search`, reach it. "
        "Default: the pages use `host` and `port`; the commands read the stores.",
    )
    token: str | None = Field(
        default=None,
        description="Token of the service, of the role `service`; better in `token_file` or the environment.",
    )
    token_file: Path | None = Field(
        default=None, description="File with that token. Default: profiles.token in `directory`."
    )
    download_hours: float = Field(
        default=72.0,
        gt=0,
        description="Hours until the document of an access request or an export expires ([rights.md](rights.md)).",
    )
    certificate_file: Path | None = Field(
        default=None, description="PEM file with the certificate by which the service speaks https."
    )
    certificate_key_file: Path | None = Field(default=None, description="PEM file with its private key.")
    access_log: bool = Field(
        default=False,
        description="Whether each request is logged: method, pattern of the path, status, time, caller, and an id that the answer "
        "has as `X-Request-Id`.",
    )
    allow_plain_http: bool = Field(
        default=False,
        description="Whether it may listen beyond this machine without https, because something else encrypts.",
    )
    allowed_origins: Annotated[
        tuple[str, ...], AfterValidator(lambda origins: tuple(map(web_origin, origins)))
    ] = Field(
        default=(),
        description='Origins of web pages whose scripts may call the service from a browser (CORS), as `["https://shop.example"]`. '
        "Default: none.",
    )
    contact_attributes: dict[Literal["name", "phone", "email", "postcode"], tuple[str, ...]] = Field(
        default={},
        description="Attribute paths that the contact search compares with each of `name`, `phone`, `email` and `postcode` "
        "([profiles.md](profiles.md)).",
    )
    checked_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of look-ups that are noted for `idgraph features check`, as keyed hashes of profile, entries and derived "
        "attributes ([behaviour.md](behaviour.md#are-look-ups-what-a-model-was-trained-on)). Default: none.",
    )
    consent_source: str | None = Field(
        default=None,
        description="Source that takes consents which are recorded over HTTP ([rights.md](rights.md)). Default: none are.",
    )
    webhooks: tuple[WebhookSettings, ...] = ()
    topics: tuple[TopicSettings, ...] = ()
    requests_per_second: float = Field(
        default=500.0,
        gt=0,
        description="Requests of each caller per second in the long run, and twice as many at once; more get the status 429.",
    )


class OidcRule(SettingsTable):
    """Rights of persons who have a value in a claim."""

    claim: str = Field(min_length=1, description="Name of the claim, for instance `groups`.")
    value: str = Field(min_length=1, description="The value that it has, or has among others.")
    role: Literal["viewer", "analyst", "publisher", "admin", "privacy"] = Field(description="The role.")
    clearance: int = Field(default=0, ge=0, le=100, description="The highest authorization level they read.")
    reveal: bool = Field(default=False, description="Whether they may open protected values.")
    scopes: tuple[Scope, ...] = Field(
        default=(), description="Rights in the profile service, besides those of the role."
    )


class OidcSettings(SettingsTable):
    """Single sign-on by OpenID Connect, for the pages and for bearer tokens of both services."""

    issuer: Annotated[str | None, AfterValidator(lambda url: url and without_credentials(url))] = Field(
        default=None, description="URL of the issuer, https or on this machine. Default: no single sign-on."
    )
    client_id: str = Field(default="idgraph", min_length=1, description="The issuer's name for the pages.")
    client_secret_file: Path | None = Field(
        default=None,
        description="File with the secret of the pages; without one PKCE alone protects the code.",
    )
    audience: str | None = Field(
        default=None,
        min_length=1,
        description="Audience of the bearer tokens that both services take. Default: they take none.",
    )
    name_claim: str = Field(
        default="preferred_username",
        description="Claim with the name that history has; it is read at the first sign-in, and stays.",
    )
    title: str = Field(
        default="single sign-on", max_length=60, description="Name of the issuer on the button."
    )
    redirect_url: Annotated[str | None, AfterValidator(lambda url: url and http_url(url))] = Field(
        default=None,
        description="Address to which the issuer sends people back, `https://HOST/ui/sign-in/callback`, if a proxy changes host or scheme.",
    )
    ca_file: Path | None = Field(
        default=None, description="PEM file of trusted authorities. Default: the system's."
    )
    rules: tuple[OidcRule, ...] = Field(
        default=(), description="Rights by claims, as [[oidc.rules]]: the first that fits. Without one: none."
    )

    @model_validator(mode="after")
    def _is_private(self) -> OidcSettings:
        if self.issuer is not None and not is_private(self.issuer):
            raise ValueError(
                "`issuer` must be https://..., or http:// on this machine, because it vouches for people"
            )
        return self


def http_url(url: str) -> str:
    """The URL. Raises ValueError for an incomplete one."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("not a URL of a service; it looks like http://HOST:PORT")
    return url


def without_credentials(url: str) -> str:
    """The URL. Raises ValueError for one that is not whole, or holds a password."""
    if "@" in urlsplit(http_url(url)).netloc:
        raise ValueError("a URL must not hold a user or a password: workers get it in the clear")
    return url


def _kind_of(source: Any) -> Any:
    return source.get("kind", "files") if isinstance(source, dict) else getattr(source, "kind", None)


Source = Annotated[
    Annotated[FileSource, Tag("files")]
    | Annotated[KafkaSource, Tag("kafka")]
    | Annotated[PulsarSource, Tag("pulsar")],
    Discriminator(
        _kind_of, custom_error_type="kind", custom_error_message="kind must be one of: files, kafka, pulsar"
    ),
]


AnySource = FileSource | KafkaSource | PulsarSource


def require_one_flow(sources: Sequence[AnySource]) -> None:
    """Raises ValueError for sources that cannot be read by one query."""
    if len({source.kind for source in sources}) > 1:
        raise ValueError(
            "a flow reads either files or topics of one Kafka or Pulsar cluster; give each kind a configuration with a "
            "[flow] name of its own and the same directory"
        )
    topics = [topic for source in sources if isinstance(source, TopicSource) for topic in source.topics]
    if len(topics) != len(set(topics)):
        raise ValueError("two sources have the same topic")


def require_registry(sources: Sequence[AnySource], kafka: KafkaSettings) -> None:
    """Raises ValueError for a source whose schemas nobody has."""
    for source in sources:
        if isinstance(source, KafkaSource) and source.format == "registry" and kafka.registry.url is None:
            raise ValueError(f"source {source.name} has the format registry, but [kafka.registry] has no url")
