"""`idgraph.toml`: one configuration file, typed and validated; environment variables override it.

`IDGRAPH_METADATA__URL` overrides `[metadata] url`. Relative paths are relative to the file.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from ingestion.configuration import FlowConfig, SourceConfig
from model.errors import ConfigError

DEFAULT_FILE = Path("idgraph.toml")


class MetadataSettings(BaseModel):
    """The metadata service: where it is for the pipeline, and where it listens when served from here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(default="http://127.0.0.1:8410", description="Where the pipeline finds the service.")
    token: str | None = Field(
        default=None, description="Bearer token; better in `token_file` or the environment."
    )
    token_file: Path | None = Field(
        default=None, description="File that holds the token. Default: metadata.token in `directory`."
    )
    database: str | None = Field(
        default=None,
        description="SQLAlchemy URL of the service's database. Default: metadata.db in `directory`.",
    )
    max_updates: int = Field(default=500, ge=1, description="Send schema changes when this many wait.")
    schema_update_interval: float = Field(
        default=0.25, gt=0, description="Send schema changes at the latest after so many seconds."
    )


class Settings(BaseSettings):
    """All that idgraph can be told."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="IDGRAPH_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    directory: Path = Field(
        default=Path(".idgraph"),
        description="Where idgraph keeps what it writes: profiles, index, keys, dead letters, flow state.",
    )
    keyring: Path | None = Field(
        default=None, description="Keyring file. Default: keyring.json in `directory`."
    )
    metadata: MetadataSettings = MetadataSettings()
    flow: FlowConfig = FlowConfig()
    sources: tuple[SourceConfig, ...] = Field(default=(), description="Sources of the flow, as [[sources]].")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment before the file (`load` gives the file's content as init arguments)."""
        return env_settings, init_settings

    def keyring_file(self) -> Path:
        """Where the keyring is."""
        return self.keyring or self.directory / "keyring.json"

    def token_file(self) -> Path:
        """Where the metadata service's token is."""
        return self.metadata.token_file or self.directory / "metadata.token"

    def database_url(self) -> str:
        """SQLAlchemy URL of the metadata service's database."""
        return self.metadata.database or f"sqlite:///{self.directory / 'metadata.db'}"

    def flow_state(self) -> Path:
        """The flow's directory: checkpoint, journal, last snapshot."""
        return self.directory / "flows" / self.flow.name

    def sources_by_name(self) -> dict[str, SourceConfig]:
        """Sources by name, in the order of the file."""
        return {source.name: source for source in self.sources}

    def source(self, name: str) -> SourceConfig:
        """One source. Raises ConfigError with the names that there are."""
        try:
            return self.sources_by_name()[name]
        except KeyError:
            known = ", ".join(self.sources_by_name()) or "none"
            raise ConfigError(f"no source is called {name!r}; configured: {known}") from None


def load(path: Path | None = None) -> Settings:
    """Read the configuration: the given file, else $IDGRAPH_CONFIG, else ./idgraph.toml, else defaults.

    Raises ConfigError that names the file, the line where it can be told, the key, and the nearest right
    key.
    """
    chosen = path or (Path(os.environ["IDGRAPH_CONFIG"]) if os.environ.get("IDGRAPH_CONFIG") else None)
    file = chosen or DEFAULT_FILE
    content: dict[str, Any] = {}
    text = ""
    found = chosen is not None or file.exists()
    if found:
        try:
            text = file.read_text(encoding="utf-8")
            content = tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{file}: cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file}: not TOML: {error}") from None
    for key in content:
        # As keywords they would steer pydantic-settings itself.
        if key.startswith("_"):
            raise ConfigError(f"{_place(file, text, key)}: {key}: unknown key")
    try:
        settings = Settings(**content)
    except ValidationError as error:
        raise ConfigError(_explain(error, file, text)) from None
    except SettingsError as error:
        raise ConfigError(f"the environment: {error}: not JSON") from None
    names = [source.name for source in settings.sources]
    if len(names) != len(set(names)):
        raise ConfigError(f"{file}: two sources have the same name")
    return _absolute(settings, (file.parent if found else Path()).resolve())


def _absolute(settings: Settings, base: Path) -> Settings:
    metadata = settings.metadata
    if metadata.token_file:
        metadata = metadata.model_copy(update={"token_file": base / metadata.token_file})
    return settings.model_copy(
        update={
            "directory": base / settings.directory,
            "keyring": base / settings.keyring if settings.keyring else None,
            "metadata": metadata,
            "sources": tuple(
                source.model_copy(update={"path": base / source.path}) for source in settings.sources
            ),
        }
    )


def _explain(error: ValidationError, file: Path, text: str) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        keys = [str(key) for key in problem["loc"]]
        place = ".".join(keys)
        message = problem["msg"]
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(keys[-1], _keys_at(keys[:-1]), n=1)
            message = "unknown key" + (f"; did you mean {near[0]!r}?" if near else "")
        lines.append(f"{_place(file, text, keys[-1] if keys else '')}: {place}: {message}")
    return "\n".join(lines)


def _place(file: Path, text: str, key: str) -> str:
    line = _line_of(text, key)
    return f"{file}, line {line}" if line else f"{file} or the environment"


def _line_of(text: str, key: str) -> int | None:
    # tomllib keeps no lines; the first line that sets the key, or opens its table, is the likely one.
    found = re.search(rf"^[^#\n]*\b{re.escape(key)}\b\s*(=|\]|\.)", text, re.MULTILINE) if key else None
    return text.count("\n", 0, found.start()) + 1 if found else None


def _keys_at(keys: list[str]) -> list[str]:
    model: Any = Settings
    for key in keys:
        if key.isdigit():
            continue
        annotation = model.model_fields[key].annotation if key in model.model_fields else None
        inner = [
            part
            for part in (annotation, *getattr(annotation, "__args__", ()))
            if hasattr(part, "model_fields")
        ]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)
