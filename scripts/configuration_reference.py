"""Write the tables of docs/configuration.md from the configuration's types: python scripts/configuration_reference.py

It replaces the text between the two markers; tests/docs/test_configuration.py fails if the text is out of date.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, SecretStr
from pydantic.fields import FieldInfo

from idgraph.app.settings.document import IndexSettings, MetadataSettings, Settings, StoreSettings
from idgraph.app.settings.tables import (
    KeySettings,
    MetricsSettings,
    OidcRule,
    OidcSettings,
    ProfilesSettings,
    TopicSettings,
    WebhookSettings,
)
from idgraph.model.kafka import KafkaSettings, KafkaSource, RegistrySettings
from idgraph.model.pulsar import PulsarSettings, PulsarSource
from idgraph.model.sources import (
    DeadLetterLimits,
    DecryptorConfig,
    FileSource,
    FlowConfig,
    SourceConfig,
    ValuePlace,
)
from idgraph.model.spark import SparkSettings

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
BEGIN = "<!-- made by scripts/configuration_reference.py: begin -->"
END = "<!-- made by scripts/configuration_reference.py: end -->"

TABLES: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("Top level", Settings, "These keys come before the first `[table]` of the file."),
    ("`[keys]`", KeySettings, "The service that wraps the keys of the keyring."),
    ("`[metadata]`", MetadataSettings, ""),
    ("`[store]`", StoreSettings, ""),
    ("`[index]`", IndexSettings, ""),
    ("`[flow]`", FlowConfig, ""),
    ("`[flow.dead_letters]`", DeadLetterLimits, ""),
    (
        "`[spark]`",
        SparkSettings,
        "Executors on other machines, if `[flow] master` is a cluster: [cluster.md](cluster.md).",
    ),
    ("`[kafka]`", KafkaSettings, "The cluster of sources in Kafka: [kafka.md](kafka.md)."),
    ("`[kafka.registry]`", RegistrySettings, 'For sources with `format = "registry"`.'),
    ("`[pulsar]`", PulsarSettings, "The cluster of sources in Pulsar: [pulsar.md](pulsar.md)."),
    ("`[metrics]`", MetricsSettings, "Metrics and health of a running flow: [monitoring.md](monitoring.md)."),
    ("`[profiles]`", ProfilesSettings, "The profile service: [profiles.md](profiles.md)."),
    (
        "`[[profiles.webhooks]]`",
        WebhookSettings,
        "Receivers of who enters, leaves and changes in a segment: [profiles.md](profiles.md#webhooks).",
    ),
    (
        "`[[profiles.topics]]`",
        TopicSettings,
        "Topics that get the feed of changes: [profiles.md](profiles.md#the-feed-in-kafka).",
    ),
    ("`[oidc]`", OidcSettings, "Single sign-on: [security.md](security.md#single-sign-on)."),
    ("`[[oidc.rules]]`", OidcRule, "Rights by claims; the first rule that fits holds."),
    (
        "`[[sources]]`",
        SourceConfig,
        "One table per source. These keys are for all kinds; more keys depend on `kind`.",
    ),
    ('`[[sources]]` with `kind = "files"`', FileSource, "The default."),
    ('`[[sources]]` with `kind = "kafka"`', KafkaSource, "See [kafka.md](kafka.md)."),
    ('`[[sources]]` with `kind = "pulsar"`', PulsarSource, "See [pulsar.md](pulsar.md)."),
    (
        "`[sources.decryptor]`",
        DecryptorConfig,
        "Below a `[[sources]]` table with encrypted records: [decryption.md](decryption.md).",
    ),
    (
        "A place",
        ValuePlace,
        'The keys `source`, `type`, `id` and `ordinal` of a source are places: exactly one of `{ path = "..." }`, '
        '`{ const = ... }`, `{ content = true }`, and with Kafka and Pulsar `{ key = true }`, `{ header = "..." }`, '
        "`{ timestamp = true }`, with Pulsar `{ producer = true }`.",
    ),
)
"""Heading, model, and text before the table. A model that is a field of another has its own table."""
_KINDS = (FileSource, KafkaSource, PulsarSource)


def reference() -> str:
    """The part of the document between the markers."""
    return "\n".join(line for table in TABLES for line in _table(*table))


def rewritten(document: str) -> str:
    """The document with a new reference in it."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def _table(heading: str, model: type[BaseModel], before: str) -> Iterator[str]:
    yield from (f"### {heading}", "")
    if before:
        yield from (before, "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        if _own_table(field.annotation) or (model in _KINDS and name in SourceConfig.model_fields):
            continue
        default = "required" if field.is_required() else _default(field.default)
        yield f"| `{name}` | {_type(field)} | {default} | {(field.description or '').strip()} |"
    yield ""


def _own_table(annotation: Any) -> bool:
    if parts := get_args(annotation):
        return any(map(_own_table, parts))
    return annotation in {model for _, model, _ in TABLES} - {ValuePlace}


def _default(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, ValuePlace):
        inner = ", ".join(
            f"{key} = {json.dumps(item)}" for key, item in value.model_dump(exclude_defaults=True).items()
        )
        return f"`{{ {inner} }}`"
    if isinstance(value, Path):
        value = str(value)
    return f"`{json.dumps(value)}`"


def _type(field: FieldInfo) -> str:
    bounds = [text for rule in field.metadata if (text := _bound(rule))]
    return ", ".join([_name(field.annotation), *bounds])


def _bound(rule: Any) -> str:
    for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        if (limit := getattr(rule, attribute, None)) is not None:
            return f"{sign} {limit}"
    if getattr(rule, "min_length", None):
        return "not empty"
    pattern = getattr(rule, "pattern", None)
    return f"matches `{pattern}`" if pattern else ""


def _name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_name(part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is tuple:
        return f"list of {_name(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"table of {_name(get_args(annotation)[1])}"
    if issubclass(annotation, StrEnum):
        return " or ".join(f"`{json.dumps(choice)}`" for choice in annotation)
    names = {
        str: "text",
        SecretStr: "text",
        int: "integer",
        float: "number",
        bool: "true or false",
        Path: "path",
        ValuePlace: "place",
        AwareDatetime: "RFC 3339 text",
    }
    return names[annotation]


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
