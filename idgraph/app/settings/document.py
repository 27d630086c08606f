"""`idgraph.toml`: one configuration file, typed and validated; environment variables override it.

`IDGRAPH_METADATA__URL` overrides `[metadata] url`. Relative paths are relative to the file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from idgraph.app.settings.mistakes import explain, misspelt_variables, variables
from idgraph.app.settings.tables import (
    AnySource,
    KeySettings,
    MetricsSettings,
    OidcSettings,
    ProfilesSettings,
    Source,
    http_url,
    require_one_flow,
    require_registry,
    without_credentials,
)
from idgraph.model.documents import FrozenDocument, SettingsTable
from idgraph.model.errors import ConfigError
from idgraph.model.kafka import KafkaSettings
from idgraph.model.pulsar import PulsarSettings
from idgraph.model.sources import EventSources, FileSource, FlowConfig, file_sources, require_name
from idgraph.model.spark import SparkSettings
from idgraph.model.transport import require_private

log = logging.getLogger(__name__)

DEFAULT_FILE = Path("idgraph.toml")
ADMIN_TOKEN = "admin.token"  # noqa: S105 - a file's name
"""The file in `directory` that the first start of the metadata service makes."""

Table = TypeVar("Table", bound=BaseModel)

# A relative path in an SQLAlchemy URL has three slashes before it, an absolute one four.
_RELATIVE_DATABASE = re.compile(r"(sqlite(?:\+\w+)?:///)(?!/|:memory:|file:|\?)(.+)")


class MetadataSettings(SettingsTable):
    """The metadata service: its URL for the pipeline, and its database when it runs here."""

    url: Annotated[str, AfterValidator(http_url)] = Field(
        default="http://127.0.0.1:8410",
        description="URL of the metadata service, for the pipeline and the commands.",
    )
    token: str | None = Field(
        default=None,
        description="Bearer token of a command or a flow; better in a file, or in the environment of its process.",
    )
    token_file: Path | None = Field(
        default=None, description="File with the token of commands. Default: admin.token in `directory`."
    )
    flow_token_file: Path | None = Field(
        default=None,
        description="File with the token of the flow, of the role `pipeline`. Default: flow.token in `directory`.",
    )
    database: str | None = Field(
        default=None,
        description="SQLAlchemy URL of the service's database; an SQLite path is relative to the configuration file. "
        "Default: metadata.db in `directory`.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="PEM file of trusted authorities for https. Default: the system's.",
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
        description="Whether tokens may travel by plain HTTP beyond this machine, because something else encrypts.",
    )
    signing_key_file: Path | None = Field(
        default=None,
        description="File with the key by which the service signs snapshots; it makes it. Default: metadata.key in "
        "`directory`.",
    )
    public_key: str | None = Field(
        default=None,
        description="Public key of the service, for its clients. Default: the one in metadata.pub in `directory`, where "
        "the first signed answer puts it.",
    )
    max_snapshot_age_seconds: float | None = Field(
        default=None,
        ge=60,
        description="A flow that the service has not answered for so long stops: an attacker who cuts it off could keep a new "
        "protection from it. It then does not start without the service either. Default: it continues with the last snapshot.",
    )
    max_updates: int = Field(default=500, ge=1, description="Send schema changes when this many wait.")
    schema_update_interval: float = Field(
        default=0.25,
        gt=0,
        description="Least seconds between two sends of fewer schema changes.",
    )

    @model_validator(mode="after")
    def _is_private(self) -> MetadataSettings:
        require_private(self.url, self.allow_plain_http)
        return self


class StoreSettings(SettingsTable):
    """The store of profiles and data keys."""

    kind: Literal["sqlite", "dynamodb"] = Field(
        default="sqlite",
        description="Files in `directory`, or tables in DynamoDB ([dynamodb.md](dynamodb.md)).",
    )
    table_prefix: str = Field(
        default="idgraph",
        pattern=r"^[A-Za-z0-9_.-]{2,200}$",
        description="Prefix of the DynamoDB tables' names.",
    )
    region: str | None = Field(default=None, description="AWS region of the DynamoDB tables.")
    endpoint: Annotated[str | None, AfterValidator(lambda url: url and without_credentials(url))] = Field(
        default=None, description="URL of another DynamoDB, such as DynamoDB Local."
    )

    @model_validator(mode="after")
    def _has_region(self) -> StoreSettings:
        if self.kind == "dynamodb" and not self.region:
            raise ValueError("DynamoDB needs a `region`, for instance eu-central-1")
        return self


class IndexSettings(SettingsTable):
    """The search index."""

    kind: Literal["sqlite", "elasticsearch"] = Field(
        default="sqlite",
        description="A file in `directory`, or an index in Elasticsearch (see [elasticsearch.md](elasticsearch.md)).",
    )
    fed_by: Literal["flow", "streams"] = Field(
        default="flow",
        description="Indexer of the flow's writes: the flow, or `idgraph index follow` from the stream of the "
        "DynamoDB table ([dynamodb.md](dynamodb.md#indexing-by-streams)).",
    )
    url: Annotated[str, AfterValidator(without_credentials)] = Field(
        default="http://127.0.0.1:9200", description="URL of Elasticsearch."
    )
    name: str = Field(
        default="idgraph",
        pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$",
        description="Alias for searches and writes; index versions are named `NAME-000001` and so on.",
    )
    username: str | None = Field(
        default=None,
        description="User name; the password is in `password_file` or `IDGRAPH_ELASTICSEARCH_PASSWORD`.",
    )
    password_file: Path | None = Field(default=None, description="File with the password.")
    api_key_file: Path | None = Field(
        default=None,
        description="File with an API key; or set `IDGRAPH_ELASTICSEARCH_API_KEY`. It takes precedence over a "
        "password.",
    )
    ca_file: Path | None = Field(
        default=None, description="PEM file of trusted authorities for https. Default: the system's."
    )
    shards: int = Field(default=1, ge=1, le=1024, description="Primary shards of a new index version.")
    replicas: int = Field(default=1, ge=0, le=10, description="Copies of each shard of a new index version.")


class Settings(FrozenDocument):
    """All settings."""

    directory: Path = Field(
        default=Path(".idgraph"),
        description="Folder for everything that idgraph writes: profiles, index, keys, dead letters, flow state.",
    )
    keyring: Path | None = Field(
        default=None, description="Keyring file. Default: keyring.json in `directory`."
    )
    keys: KeySettings = KeySettings()
    metadata: MetadataSettings = MetadataSettings()
    store: StoreSettings = StoreSettings()
    index: IndexSettings = IndexSettings()
    flow: FlowConfig = FlowConfig()
    spark: SparkSettings = SparkSettings()
    kafka: KafkaSettings = KafkaSettings()
    pulsar: PulsarSettings = PulsarSettings()
    metrics: MetricsSettings = MetricsSettings()
    profiles: ProfilesSettings = ProfilesSettings()
    oidc: OidcSettings = OidcSettings()
    sources: tuple[Source, ...] = Field(default=(), description="Sources of the flow, as [[sources]].")
    _file: Path | None = PrivateAttr(default=None)
    _sandbox: str = PrivateAttr(default="")
    _production: Settings | None = PrivateAttr(default=None)

    @property
    def production(self) -> Settings | None:
        """The settings of production, in a sandbox."""
        return self._production

    @property
    def file(self) -> Path | None:
        """The file of the configuration; None where there are only the environment and the defaults."""
        return self._file

    @property
    def sandbox(self) -> str:
        """The sandbox that these are the settings of; empty for production."""
        return self._sandbox

    @field_validator("directory", "keyring", mode="before")
    @classmethod
    def _are_given(cls, value: object) -> object:
        return require_name(value)

    @model_validator(mode="after")
    def _is_one_flow(self) -> Settings:
        require_one_flow(self.sources)
        require_registry(self.sources, self.kafka)
        return self

    @model_validator(mode="after")
    def _has_streams(self) -> Settings:
        if self.index.fed_by == "streams" and self.store.kind != "dynamodb":
            raise ValueError('[index] fed_by: only a [store] of kind "dynamodb" has streams')
        return self

    def keyring_file(self) -> Path:
        """Path of the keyring."""
        return self.keyring or self.directory / "keyring.json"

    def token_file(self) -> Path:
        """Path of the token by which commands call the metadata service."""
        return self.metadata.token_file or self.directory / ADMIN_TOKEN

    def flow_token_file(self) -> Path:
        """Path of the flow's own token."""
        return self.metadata.flow_token_file or self.directory / "flow.token"

    def profiles_token_file(self) -> Path:
        """Path of the profile service's own token."""
        return self.profiles.token_file or self.directory / "profiles.token"

    def database_url(self) -> str:
        """SQLAlchemy URL of the metadata service's database."""
        return self.metadata.database or f"sqlite:///{self.directory / 'metadata.db'}"

    def flow_state(self) -> Path:
        """The flow's directory: checkpoint, journal, last snapshot."""
        return self.directory / "flows" / self.flow.name

    def sources_by_name(self) -> dict[str, AnySource]:
        """Sources by name, in the order of the file."""
        return {source.name: source for source in self.sources}

    def event_sources(self) -> EventSources:
        """The names of the configured sources in their events."""
        return EventSources.of(self.sources)

    def source(self, name: str) -> AnySource:
        """One source. Raises ConfigError with the configured names, or where there is no configuration."""
        try:
            return self.sources_by_name()[name]
        except KeyError:
            self.require_folder()
            known = ", ".join(self.sources_by_name()) or "none"
            raise ConfigError(f"no source is called {name!r}; configured: {known}") from None

    def file_source(self, name: str) -> FileSource:
        """One source that publishes files. Raises ConfigError for another."""
        source = self.source(name)
        if not isinstance(source, FileSource):
            raise ConfigError(f"source {name} is in topics, not in files")
        return source

    def require_folder(self) -> None:
        """Raise ConfigError where there is neither a configuration nor anything stored: the data that a
        command misses there is somewhere else."""
        if self._file is None and not self.directory.exists():
            raise ConfigError(
                f"there is no {DEFAULT_FILE} in {Path.cwd()}, and no {self.directory.name}; go to the folder that has them, or "
                f"name the file: `idgraph --config FOLDER/{DEFAULT_FILE}` or IDGRAPH_CONFIG"
            )

    def sandboxes(self) -> Path | None:
        """Folder of the sandboxes; None where there can be none."""
        is_embedded = self.store.kind == "sqlite" and self.index.kind == "sqlite"
        return self.directory / "sandboxes" if is_embedded and not self._sandbox else None


def load_of(config: str | Path | None) -> Settings:
    """The configuration of an idgraph.toml, or of the folder that has one; as `load` without either."""
    path = Path(config) if config is not None else None
    return load(path / DEFAULT_FILE if path is not None and path.is_dir() else path)


def load(path: Path | None = None) -> Settings:
    """Read the configuration: the given file, else $IDGRAPH_CONFIG, else ./idgraph.toml, else defaults.

    Raises ConfigError with the file, the line if known, the key, and the nearest valid key.
    """
    chosen = path or (Path(os.environ["IDGRAPH_CONFIG"]) if os.environ.get("IDGRAPH_CONFIG") else None)
    file = chosen or DEFAULT_FILE
    found = chosen is not None or file.exists()
    text, content = _read(file) if found else ("", {})
    environment = variables(Settings)
    try:
        # As JSON, which has no other types: a text is no number there, and a path and a choice are texts.
        stated = json.dumps(_updated(content, environment), default=str)
        settings = Settings.model_validate_json(stated, strict=True)
    except ValidationError as error:
        raise ConfigError(explain(error, Settings, file, text, content, environment)) from None
    for warning in misspelt_variables(Settings):
        log.warning("%s", warning)
    names = [source.name for source in settings.sources]
    if len(names) != len(set(names)):
        raise ConfigError(f"{file}: two sources have the same name")
    settings = _placed(settings, (file.parent if found else Path()).resolve())
    settings._file = file.resolve() if found else None
    of_path: dict[str, str] = {}
    for name, source in file_sources(settings.sources_by_name()).items():
        if (other := of_path.setdefault(os.path.realpath(source.path), name)) != name:
            raise ConfigError(
                f"{file}: sources {other} and {name} have the same path, and a file is of one source: give each a "
                "folder, or let specs choose among the events of one source by `type`"
            )
    return settings


def _updated(content: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with those of the environment over them, key by key."""
    updated = dict(content)
    for key, value in more.items():
        known = updated.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            updated[key] = _updated(known, value)
        else:
            updated[key] = value
    return updated


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}, line {line}: not UTF-8, as TOML is") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None


def _placed(table: Table, base: Path) -> Table:
    """A table whose paths do not depend on the current folder."""

    def placed(value: Any) -> Any:
        if isinstance(value, Path):
            # Without `..`: Spark names the files that it finds without it.
            return Path(os.path.abspath(base / value))  # noqa: PTH100 - links stay
        if isinstance(value, tuple):
            return tuple(map(placed, value))
        return _placed(value, base) if isinstance(value, BaseModel) else value

    update = {name: placed(getattr(table, name)) for name in type(table).model_fields}
    if (database := update.get("database")) and (relative := _RELATIVE_DATABASE.fullmatch(database)):
        update["database"] = f"{relative[1]}{base / relative[2]}"
    return table.model_copy(update=update)
