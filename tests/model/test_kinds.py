"""Messages about events name what JSON has, and nothing of Python."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.errors import EventError
from idgraph.model.events import RawRecord
from idgraph.model.sources import FileSource
from idgraph.model.stamps import read_ordinal
from ingestion.stages.decode import EnvelopeReader
from tests.retail import SOURCES, order, spec
from transforms.spec.mapping import MappingSpec

KINDS: list[tuple[Any, str]] = [
    ({"s3cr3t": 1}, "an object"),
    (["s3cr3t"], "an array"),
    (True, "true or false"),
    (1.5, "a number"),
    (Decimal("0.12345678901234567890123"), "a number"),
]


@pytest.mark.parametrize(("value", "reported"), [*KINDS, (None, "null")])
def test_an_ordinal(value: Any, reported: str) -> None:
    with pytest.raises(EventError) as caught:
        read_ordinal(value)
    assert str(caught.value) == f"bad_ordinal: the ordinal is {reported}, not an integer or a time"


@pytest.mark.parametrize(
    ("value", "reported"), [*((v, f"{t}, not text") for v, t in KINDS), ("", "empty text")]
)
def test_an_envelope(value: Any, reported: str) -> None:
    source = FileSource.model_validate({"name": "shop", "path": "inbox", "type": {"path": "t"}})
    with pytest.raises(EventError) as caught:
        EnvelopeReader(source).read(RawRecord("shop", "file:x#1", canonical.encode({"t": value})))
    assert str(caught.value) == f"wrong_type: the envelope's type is {reported}"


@pytest.mark.parametrize(
    ("value", "reported"), [*KINDS, pytest.param(10**4000, "a number", id="a long integer")]
)
def test_a_mapped_id(value: Any, reported: str) -> None:
    event = EnvelopeReader(SOURCES["orders"]).read(order(order_id=value))
    with pytest.raises(EventError) as caught:
        MappingSpec(spec("orders")).map(event)
    assert str(caught.value) == f"wrong_type: the event id is {reported}, not text or a short integer"
