"""The promises of every place of shared documents (`idgraph.model.shared_documents.SharedDocuments`)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from idgraph.model.errors import AlreadyRunningError
from idgraph.model.shared_documents import SharedDocuments
from tests.contracts.implementations import SHARED_DOCUMENTS, Implementation
from tests.contracts.processes import start
from tests.support.patience import eventually


@pytest.fixture(params=SHARED_DOCUMENTS, ids=str)
def kept(request: pytest.FixtureRequest) -> Implementation[SharedDocuments]:
    implementation: Implementation[SharedDocuments] = request.param
    return implementation


@pytest.fixture
def documents(kept: Implementation[SharedDocuments], tmp_path: Path) -> Iterator[SharedDocuments]:
    with kept.opened(tmp_path) as opened:
        yield opened


def test_a_document_is_read_as_it_was_written_last(documents: SharedDocuments) -> None:
    assert documents.read("flows/shop/report.json") is None
    documents.write("flows/shop/report.json", b"one")
    documents.write("flows/shop/report.json", b"", durable=False)
    assert documents.read("flows/shop/report.json") == b""
    documents.write("flows/shop/report.json", b"two" * 300_000)
    assert documents.read("flows/shop/report.json") == b"two" * 300_000
    assert documents.remove("flows/shop/report.json")
    assert not documents.remove("flows/shop/report.json")
    assert documents.read("flows/shop/report.json") is None


def test_a_document_is_added_once_whoever_adds_it(documents: SharedDocuments) -> None:
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda each: documents.add("flows/shop/paused.json", b"%d" % each), range(8)))
    assert added.count(True) == 1
    assert documents.read("flows/shop/paused.json") == b"%d" % added.index(True)
    assert documents.remove("flows/shop/paused.json")
    assert documents.add("flows/shop/paused.json", b"again")


def test_names_are_those_of_the_pattern(documents: SharedDocuments) -> None:
    for name in ("flows/a/report.json", "flows/b/report.json", "flows/b/held/s.json", "receipts/c.json"):
        documents.write(name, b"{}")
    assert documents.names("flows/*/report.json") == ["flows/a/report.json", "flows/b/report.json"]
    assert documents.names("flows/b/held/*.json") == ["flows/b/held/s.json"]
    assert documents.names("receipts/*") == ["receipts/c.json"]
    assert documents.names("downloads/*") == []


def test_others_see_the_same(kept: Implementation[SharedDocuments], tmp_path: Path) -> None:
    with kept.opened(tmp_path) as one, kept.opened(tmp_path) as two:
        one.write("flows/shop/report.json", b"{}")
        assert two.read("flows/shop/report.json") == b"{}"


def test_one_at_a_time_holds_a_lease(kept: Implementation[SharedDocuments], tmp_path: Path) -> None:
    with kept.opened(tmp_path) as one, kept.opened(tmp_path) as two:
        with one.lease("webhooks/crm") as held:
            with pytest.raises(AlreadyRunningError), two.lease("webhooks/crm"):
                pass
            with two.lease("webhooks/other"):
                held.require()
        with two.lease("webhooks/crm") as taken:
            taken.require()


PROGRAM = """
import sys, threading
from pathlib import Path
from tests.contracts.implementations import SHARED_DOCUMENTS
(found,) = (each for each in SHARED_DOCUMENTS if each.name == sys.argv[2])
with found.open(Path(sys.argv[1])).lease("webhooks/crm"):
    print("held", flush=True)
    threading.Event().wait()
"""


@pytest.mark.process
def test_the_lease_of_a_process_that_was_killed_is_taken_over(
    kept: Implementation[SharedDocuments], documents: SharedDocuments, tmp_path: Path
) -> None:
    process = start(PROGRAM, tmp_path, kept.name)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"

    def is_free() -> bool:
        with suppress(AlreadyRunningError), documents.lease("webhooks/crm"):
            return True
        return False

    assert not is_free()
    process.kill()
    process.communicate()
    eventually(is_free)
