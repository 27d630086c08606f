"""The targets of the documentation's links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [
    *(ROOT / each for each in ("README.md", "CONTRIBUTING.md", "deploy/README.md", "benchmarks/README.md")),
    *sorted(DOCS.rglob("*.md")),
]
FOLDERS = "benchmarks docs examples idgraph ingestion merge metadata_service native profile_service scripts sinks tests transforms"


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = [link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)]
    assert [target for target in targets if target and not (document.parent / target).exists()] == []


def anchors(document: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_to_a_heading(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s#]*)#([^)\s]+)\)", document.read_text(encoding="utf-8"))
    assert [
        f"{target}#{heading}"
        for target, heading in links
        if heading not in anchors(document.parent / target if target else document)
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_files_of_the_repository_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    # Names in capitals stand for a name to be chosen: `sinks/NAME.py`.
    paths = re.findall(rf"`((?:{FOLDERS.replace(' ', '|')})/[a-z0-9_./\-]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_everything_is_on_the_map() -> None:
    for folder, index in ((DOCS, "index.md"), (DOCS / "adr", "README.md")):
        text = (folder / index).read_text(encoding="utf-8")
        missing = [
            file.name for file in folder.glob("*.md") if file.name != index and f"({file.name})" not in text
        ]
        assert missing == []
