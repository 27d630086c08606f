"""The first message of docs/behaviour.md arrives: its receiver, its cart, and the example's definitions."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from idgraph.app.behaviour_documents import read_behaviour
from idgraph.app.demo.example import EXAMPLES
from idgraph.model import queries
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.events import RawRecord
from idgraph.model.query_language import parse_query
from idgraph.model.triggers import TriggerDocument
from idgraph.model.views import SegmentDocument
from profile_service.api.triggers import Triggers
from profile_service.api.webhooks import Webhook
from profile_service.trigger_ledger import TriggerLedger
from sinks.document_folder import DocumentFolder
from sinks.http.webhook import WebhookSender
from tests.profile_service.api.conftest import caller, served_here
from tests.retail import Pipeline, raw
from tests.support.patience import eventually
from tests.support.processes import free_port

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[2] / "docs" / "behaviour.md").read_text(encoding="utf-8")
SECTION = TEXT[TEXT.index("**The first message.**") : TEXT.index("## Features for training")]
RECEIVER, _CONFIGURATION, _SETUP, CART, MESSAGE = re.findall(r"```\w*\n(.*?)```", SECTION, re.DOTALL)


def example(pipeline: Pipeline) -> None:
    """Put the example's definitions in force."""
    behaviour = read_behaviour(EXAMPLES / "retail" / "behaviour.json")
    (segment,) = behaviour.segments
    asked = queries.to_json(parse_query([segment.q or ""], lambda _: None))
    triggers = read_behaviour(EXAMPLES / "retail" / "triggers.json").triggers
    content = {
        "activities": tuple(ActivityDocument(**dict(each), version=1) for each in behaviour.activities),
        "derived_attributes": tuple(
            DerivedDocument(**dict(each), version=1) for each in behaviour.derived_attributes
        ),
        "behaviour_version": 1,
        "segments": (SegmentDocument(**dict(segment) | {"query": asked}, version=1),),
        "triggers": tuple(TriggerDocument(**dict(each), version=1) for each in triggers),
    }
    pipeline.snapshot = pipeline.snapshot.model_copy(update=content)


def cart(ago: str = "61 minutes", user: str = "U01") -> RawRecord:
    """The event that the documentation's command writes."""
    command = CART[: CART.index("> cart.jsonl")].replace("61 minutes", ago).replace("U01", user)
    written = subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    return raw(written.stdout, source="segment")


def test_the_first_message_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEASED_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(f"profile_service.api.triggers.{name}", 0.01)
    port = free_port()
    secret = tmp_path / "reminders.secret"
    secret.write_bytes(b"whsec_" + base64.b64encode(bytes(32)) + b"\n")
    pipeline = Pipeline(tmp_path, now=time.time)
    example(pipeline)
    documents = DocumentFolder(tmp_path)
    code = RECEIVER.replace("8455", str(port))
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as receiver:
        assert receiver.stdout
        sender = WebhookSender(f"http://127.0.0.1:{port}/", secret)
        with (
            served_here(pipeline, [caller("all", 100)]) as served,
            Triggers(served.service, [Webhook("reminders", None, 0, sender)], documents),
        ):
            eventually(lambda: documents.read("triggers/place.json"))
            pipeline.process([cart()])
            shown = re.sub(r'"at":"[^"]*"', '"at":"..."', receiver.stdout.readline())
            pipeline.process([cart("2 days", "U02")])
            ledger = TriggerLedger(documents)
            eventually(lambda: len(ledger.lines("cart-reminder", 10)) == 2)
        receiver.kill()
        sender.close()
    assert shown == MESSAGE
    found = {(each.outcome, each.reason) for each in ledger.lines("cart-reminder", 10)}
    assert found == {("fired", ""), ("suppressed", "expired")}
    documents.close()
