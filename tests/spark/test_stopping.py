"""A flow that is asked to stop ends well, and the next run continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.schema_changes import SchemaChange
from sinks.http.metadata import MetadataClient
from tests.installation import Installation, Shop, descendants, kill_tree, retail, until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


def test_ctrl_c_ends_after_the_micro_batch_and_a_killed_jvm_with_one_message(
    tmp_path: Path, shop: Shop
) -> None:
    installation = Installation(tmp_path, shop)
    orders = retail("orders")
    installation.publish("orders", orders[:10])
    with installation.running() as process:
        until(lambda: installation.batches() or process.poll() is not None, what="the first micro-batch")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    said = (installation.folder / "flow.err").read_text()
    assert "the next run continues from here" in said
    assert "Traceback" not in said

    installation.publish("orders", orders[10:20])
    process = installation.start()
    try:
        until(lambda: len(installation.batches()) > 1 or process.poll() is not None, what="the next run's")
        assert sum(batch["events"] for batch in installation.batches()) == 20
        for pid in _java_of(process):
            os.kill(pid, signal.SIGKILL)
        assert process.wait(60) == 4
    finally:
        if process.poll() is None:
            kill_tree(process)
    lines = (installation.folder / "flow.err").read_text().removeprefix(said).splitlines()
    assert not [line for line in lines if line.startswith(("Traceback", "Exception", "ERROR"))]
    assert lines[-1].startswith("error: Spark's Java process is gone")

    installation.publish("orders", orders[20:30])
    # What it did last is done again where Spark had not noted yet that it was done.
    assert sum(batch["events"] for batch in installation.run()) in (10, 20)


def test_a_signal_to_all_of_its_processes_is_an_interruption_and_no_failure(
    tmp_path: Path, shop: Shop
) -> None:
    """Service managers send SIGTERM to a whole group, and so to Spark's Java process too."""
    installation = Installation(tmp_path, shop, split_bytes=20_000)
    segment = retail("segment")[:5000]
    installation.publish("segment", segment)
    pin = installation.folder / ".idgraph/flows/shop/batch.json"
    process = installation.start()
    try:
        until(lambda: pin.exists() or process.poll() is not None, what="the micro-batch's begin")
        _ask_all(process)
        assert process.wait(60) == 130, (installation.folder / "flow.err").read_text()
    finally:
        if process.poll() is None:
            kill_tree(process)
    said = (installation.folder / "flow.err").read_text()
    assert "this micro-batch is taken up by the next run" in said
    assert "error" not in said
    assert sum(batch["events"] for batch in installation.run()) == len(segment)


@pytest.mark.parametrize("seconds", [0.0, 0.7])
def test_a_signal_to_all_of_its_processes_while_spark_starts_is_one_too(
    tmp_path: Path, shop: Shop, seconds: float
) -> None:
    installation = Installation(tmp_path, shop)
    process = installation.start()
    _ask_all_once(process, "SparkSubmit", seconds)
    assert process.returncode == 130, (installation.folder / "flow.err").read_text()
    assert "error" not in (installation.folder / "flow.err").read_text()


def test_a_signal_to_all_of_its_processes_while_java_is_looked_for_is_one_too(
    tmp_path: Path, shop: Shop
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexec sleep 50\n")
    java.chmod(0o755)
    installation = Installation(tmp_path / "flow", shop)
    process = installation.start(JAVA_HOME=str(tmp_path / "java"))
    _ask_all_once(process, "sleep")
    assert process.returncode == 130, (installation.folder / "flow.err").read_text()
    assert "error" not in (installation.folder / "flow.err").read_text()


def _ask_all_once(process: subprocess.Popen[bytes], running: str, seconds: float = 0.0) -> None:
    """Ask a process and all below it to end, some time after one of them runs a program; waits for its end."""
    try:
        until(
            lambda: process.poll() is not None or any(running in line for line in _command_lines(process)),
            what=running,
        )
        time.sleep(seconds)
        _ask_all(process)
        process.wait(60)
    finally:
        if process.poll() is None:
            kill_tree(process)


def _command_lines(process: subprocess.Popen[bytes]) -> list[str]:
    found = []
    for pid in descendants(process.pid):
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found


def test_java_that_is_killed_after_the_flow_was_asked_to_stop_is_a_failure(
    tmp_path: Path, shop: Shop
) -> None:
    installation = Installation(tmp_path, shop, split_bytes=20_000)
    installation.publish("segment", retail("segment")[:5000])
    pin = installation.folder / ".idgraph/flows/shop/batch.json"
    process = installation.start()
    try:
        until(lambda: pin.exists() or process.poll() is not None, what="the micro-batch's begin")
        process.send_signal(signal.SIGTERM)
        for pid in _java_of(process):
            os.kill(pid, signal.SIGKILL)
        assert process.wait(60) == 4, (installation.folder / "flow.err").read_text()
    finally:
        if process.poll() is None:
            kill_tree(process)
    assert "error: Spark's Java process is gone" in (installation.folder / "flow.err").read_text()


def _ask_all(process: subprocess.Popen[bytes]) -> None:
    """What is sent to a process and all below it asks them to end."""
    for pid in descendants(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _java_of(process: subprocess.Popen[bytes]) -> list[int]:
    found = []
    for pid in descendants(process.pid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                found.append(pid)
    return found


def test_a_store_that_fails_ends_the_run_with_its_own_words(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop)
    installation.publish("orders", retail("orders")[:10])
    obstacle = installation.folder / ".idgraph" / "profiles.db"
    obstacle.mkdir(parents=True)
    failed = installation.command("run", "--until-done", code=1)
    assert b"profiles.db" in failed.stderr
    assert b"Traceback" not in failed.stderr
    obstacle.rmdir()
    assert sum(batch["events"] for batch in installation.run()) == 10


def test_one_flow_is_run_once(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop)
    process = installation.start()
    try:
        until((installation.folder / ".idgraph/flows/shop/lock").exists, what="the lock")
        refused = installation.command("run", code=2)
        assert b"running already" in refused.stderr
        assert b"starting Spark" not in refused.stderr
    finally:
        kill_tree(process)


def test_a_batch_that_is_given_again_keeps_its_snapshot(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop, split_bytes=20_000)
    installation.publish("segment", retail("segment")[:500])
    pin = installation.folder / ".idgraph/flows/shop/batch.json"
    process = installation.start("--until-done")
    until(lambda: pin.exists() or process.poll() is not None, what="the pin")
    kill_tree(process)
    begun_with = json.loads(pin.read_bytes())
    with MetadataClient(shop.url, shop.token) as client:
        client.send(
            [SchemaChange(path="made.meanwhile", data_type=DataType.STRING, source="test", first_event="x")]
        )
    (batch,) = installation.run()
    assert f"{batch['snapshot']}-" in begun_with["etag"]
    assert json.loads(pin.read_bytes()) == begun_with


def test_workers_take_nothing_from_the_current_folder(tmp_path: Path, shop: Shop) -> None:
    """Found by use: a folder with a package `ingestion` of its own broke the run."""
    installation = Installation(tmp_path, shop)
    installation.publish("orders", retail("orders")[:10])
    (tmp_path / "ingestion").mkdir()
    (tmp_path / "ingestion" / "__init__.py").write_text("raise ImportError('not this one')\n")
    program = Path(sys.executable).with_name("idgraph")
    subprocess.run([program, "-c", installation.config, "run", "--until-done"], cwd=tmp_path, check=True)
    assert len(installation.export().splitlines()) == 10
