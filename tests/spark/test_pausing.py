"""A flow that is paused takes nothing, also when it starts again; resumed, it loses nothing and does nothing twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from idgraph.model.flows import FlowReport, Flows, FlowState
from sinks.document_folder import DocumentFolder
from tests.installation import Installation, Shop, retail, until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_pause_holds_across_a_restart_and_loses_and_doubles_nothing(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop)
    folders = Flows(DocumentFolder(installation.folder / ".idgraph"))
    (name,) = ("shop",)
    orders = retail("orders")

    def report() -> FlowReport:
        found = folders.report(name)
        assert found is not None
        return found

    def events() -> int:
        return sum(batch["events"] for batch in installation.batches())

    def stays_paused(planned: int) -> None:
        """The micro-batch is planned, and the flow has looked at its pause since."""
        checkpoint = installation.folder / ".idgraph/flows/shop/checkpoint/offsets"
        until((checkpoint / str(planned)).exists, what="the plan of the micro-batch")
        since = report().written_ms
        until(lambda: report().written_ms > since + 2000, what="further reports")
        assert report().state is FlowState.PAUSED

    installation.publish("orders", orders[:10])
    with installation.running() as process:
        until(lambda: installation.batches() or process.poll() is not None, what="the first micro-batch")
        until(lambda: report().state is FlowState.RUNNING and report().last_batch, what="a report")
        assert {each.name: each.last_event_ms is not None for each in report().sources}["orders"]
        installation.command("flows", "pause", name, "--reason", "the store moves")
        installation.publish("orders", orders[10:20])
        stays_paused(1)
        assert events() == 10
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (installation.folder / "flow.err").read_text()
    assert events() == 10
    assert report().state is FlowState.STOPPED

    with installation.running() as process:
        until(lambda: report().state is FlowState.PAUSED or process.poll() is not None, what="the pause")
        stays_paused(1)
        assert events() == 10
        shown = installation.command("flows", "show", "--json").stdout
        assert json.loads(shown)["pause"]["why"] == "the store moves"
        installation.command("flows", "resume", name)
        until(lambda: events() >= 20 or process.poll() is not None, what="the second micro-batch")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (installation.folder / "flow.err").read_text()
    assert [batch["events"] for batch in installation.batches()] == [10, 10]
    assert installation.run() == []
    audit = (installation.folder / ".idgraph/audit.jsonl").read_text()
    assert "pause flow" in audit
    assert "the store moves" in audit

    whole = Installation(tmp_path / "whole", shop)
    whole.publish("orders", orders[:10])
    whole.publish("orders", orders[10:20])
    whole.run()
    assert installation.export() == whole.export()
