"""Documents of jobs: one that cannot be read hurts no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.jobs.downloads import Downloads
from idgraph.model.errors import SealError
from idgraph.model.shared_documents import SharedDocuments
from idgraph.model.tombstones import TombstoneNames
from tests.contracts.implementations import SHARED_DOCUMENTS, Implementation
from tests.support.memory.key_provider import FixedProvider
from transforms.privacy.record_sealing import DeadLetterSealer


def name(fragment_id: str) -> bytes:
    return fragment_id.encode()


@pytest.fixture(params=SHARED_DOCUMENTS, ids=str)
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedDocuments]:
    implementation: Implementation[SharedDocuments] = request.param
    with implementation.opened(tmp_path) as opened:
        yield opened


@pytest.fixture
def downloads(documents: SharedDocuments) -> Downloads:
    names: TombstoneNames = name
    found = Downloads(documents, DeadLetterSealer(FixedProvider()), names, lambda: 0)
    for job, fragment in (("ann", "user_id:1"), ("bob", "user_id:2")):
        found.keep(job, job.encode(), [fragment], 1)
    return found


def content(downloads: Downloads, job_id: str) -> bytes | None:
    found = downloads.read(job_id)
    return None if found is None else found.content


@pytest.mark.parametrize(
    "head", [b"", b"nonsense\n", b"5\n", b"{}\n", json.dumps({"expires_ms": None}).encode()]
)
def test_a_damaged_document_hurts_no_other(
    downloads: Downloads, documents: SharedDocuments, head: bytes
) -> None:
    documents.write("downloads/alone.head", head)
    assert content(downloads, "alone") is None
    assert content(downloads, "bob") == b"bob"
    assert documents.read("downloads/alone.head") == head
    # It may be of anybody.
    downloads.erase(["user_id:1"])
    assert {each.partition(".")[0] for each in documents.names("downloads/*")} == {"downloads/bob"}


def test_a_document_of_any_size_comes_as_it_was_put_and_goes_whole(
    downloads: Downloads, documents: SharedDocuments
) -> None:
    large = bytes(range(256)) * 10_000
    with downloads.writing("large", ["user_id:1"], 1) as put:
        for start in range(0, len(large), 300_000):
            put(large[start : start + 300_000])
        assert (downloads.read("large"), downloads.unfinished()) == (None, ["large"])
    assert content(downloads, "large") == large
    assert not any(large[:64] in (documents.read(each) or b"") for each in documents.names("downloads/*"))
    downloads.erase(["user_id:1"])
    downloads.remove("bob")
    assert documents.names("downloads/*") == []


def test_nothing_is_left_of_a_document_whose_job_failed(
    downloads: Downloads, documents: SharedDocuments
) -> None:
    before = documents.names("downloads/*")

    def fail() -> None:
        with downloads.writing("cut", None, 1) as put:
            put(bytes(3 << 20))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert documents.names("downloads/*") == before


def test_a_document_that_was_cut_is_not_taken_for_whole(
    downloads: Downloads, documents: SharedDocuments
) -> None:
    documents.remove("downloads/ann.000001")
    with pytest.raises(SealError, match="is cut"):
        content(downloads, "ann")


def test_documents_expire(downloads: Downloads, documents: SharedDocuments) -> None:
    downloads._clock = lambda: 3600
    documents.write("downloads/of-an-earlier-version", b"{}")
    assert content(downloads, "ann") is None
    assert documents.names("downloads/*") == []
