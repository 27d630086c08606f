"""Attributes that a flow found in events, as it reports the service of them."""

from __future__ import annotations

from idgraph.app import metadata_access
from idgraph.model.attributes import DataType
from idgraph.model.classification import Classification, Proposal, SensitiveKind
from idgraph.model.schema_changes import SchemaChange
from tests.app.conftest import CommandLine

AN_EMAIL = Proposal(
    kind=SensitiveKind.EMAIL,
    classification=Classification.CONFIDENTIAL,
    reason="the name says so",
    confidence=0.9,
)


def discovered(path: str, proposal: Proposal | None = None) -> SchemaChange:
    return SchemaChange(
        path=path, data_type=DataType.STRING, source="crm", first_event="f#1", proposal=proposal
    )


def send(idgraph: CommandLine, *found: SchemaChange) -> None:
    with metadata_access.metadata_client(idgraph.settings()) as client:
        client.send(list(found))
