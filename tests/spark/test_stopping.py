"""A flow that is asked to stop ends well, and the next run goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, kill_tree, retail, until

pytestmark = pytest.mark.spark


def test_ctrl_c_ends_after_the_micro_batch(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop)
    orders = retail("orders")
    installation.publish("orders", orders[:10])
    process = installation.start()
    try:
        until(lambda: installation.batches() or process.poll() is not None, what="the first micro-batch")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            kill_tree(process)
    said = (installation.folder / "flow.err").read_text()
    assert "the next run goes on from here" in said
    assert "Traceback" not in said
    installation.publish("orders", orders[10:20])
    assert sum(batch["events"] for batch in installation.run()) == 10
