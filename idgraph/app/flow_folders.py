"""The folders of flows, where a flow leaves its report and finds whether it is to pause."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from idgraph.files import write_atomically, write_unflushed
from idgraph.model.errors import StoreError
from idgraph.model.flows import FlowPause, FlowReport, SourceHold
from ingestion.sources.held import HeldSources

Document = TypeVar("Document", bound=BaseModel)

_REPORT = "report.json"
_PAUSE = "paused.json"


class FlowFolders:
    """`Flows` below one directory. For any number of processes."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "flows"

    def names(self) -> list[str]:
        try:
            return sorted(each.parent.name for each in self._folder.glob(f"*/{_REPORT}"))
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None

    def report_file(self, name: str) -> Path:
        """The file of a flow's report."""
        return self._folder / name / _REPORT

    def report(self, name: str) -> FlowReport | None:
        return _read(self.report_file(name), FlowReport)

    def pause_of(self, name: str) -> FlowPause | None:
        return _read(self._folder / name / _PAUSE, FlowPause)

    def is_paused(self, name: str) -> bool:
        """Also by a file that cannot be read: somebody wanted it to pause."""
        return (self._folder / name / _PAUSE).exists()

    def pause(self, name: str, pause: FlowPause) -> bool:
        file = self._folder / name / _PAUSE
        if file.exists():
            return False
        try:
            write_atomically(file, pause.model_dump_json().encode())
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from None
        return True

    def resume(self, name: str) -> bool:
        file = self._folder / name / _PAUSE
        try:
            file.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from None
        return True

    def holds_of(self, name: str) -> list[SourceHold]:
        return HeldSources(self._folder / name).holds()

    def try_again(self, name: str, source: str) -> bool:
        return HeldSources(self._folder / name).try_again(source)

    def write(self, report: FlowReport) -> None:
        """Raises OSError."""
        write_unflushed(self.report_file(report.name), report.model_dump_json().encode())


def _read(file: Path, kind: type[Document]) -> Document | None:
    try:
        return kind.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}") from None
    except ValidationError:
        raise StoreError(f"{file}: is damaged, or of another version of idgraph") from None
