"""Flows as other processes see them: each leaves its report, and finds whether it is to pause."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from idgraph.model.errors import StoreError
from idgraph.model.flows import FlowPause, FlowReport, SourceHold
from idgraph.model.shared_documents import SharedDocuments
from ingestion.sources.held import HeldSources

Document = TypeVar("Document", bound=BaseModel)


class SharedFlows:
    """`Flows` of one installation. For any number of processes."""

    def __init__(self, documents: SharedDocuments) -> None:
        self._documents = documents

    def names(self) -> list[str]:
        return [each.split("/")[1] for each in self._documents.names(_report("*"))]

    def report(self, name: str) -> FlowReport | None:
        return self._read(_report(name), FlowReport)

    def pause_of(self, name: str) -> FlowPause | None:
        return self._read(_pause(name), FlowPause)

    def is_paused(self, name: str) -> bool:
        """Also by a document that cannot be understood: somebody wanted it to pause."""
        return self._documents.read(_pause(name)) is not None

    def pause(self, name: str, pause: FlowPause) -> bool:
        return self._documents.add(_pause(name), pause.model_dump_json().encode())

    def resume(self, name: str) -> bool:
        return self._documents.remove(_pause(name))

    def holds_of(self, name: str) -> list[SourceHold]:
        return self.held(name).holds()

    def try_again(self, name: str, source: str) -> bool:
        return self.held(name).try_again(source)

    def held(self, name: str) -> HeldSources:
        """The sources of a flow that wait."""
        return HeldSources(self._documents, f"flows/{name}/")

    def write(self, report: FlowReport) -> None:
        """Raises StoreError."""
        self._documents.write(_report(report.name), report.model_dump_json().encode(), durable=False)

    def _read(self, name: str, kind: type[Document]) -> Document | None:
        content = self._documents.read(name)
        try:
            return None if content is None else kind.model_validate_json(content)
        except ValidationError:
            raise StoreError(f"{name}: is damaged, or of another version of idgraph") from None


def _report(name: str) -> str:
    return f"flows/{name}/report.json"


def _pause(name: str) -> str:
    return f"flows/{name}/paused.json"
