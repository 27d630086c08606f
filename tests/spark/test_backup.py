"""A backup beside a running flow, and a flow that goes on from it somewhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.installation import Installation, Shop, kill_tree, retail, until

pytestmark = [pytest.mark.spark, pytest.mark.long]

FILES, LINES = 16, 40


def published(installation: Installation, files: range) -> None:
    for number in files:
        for source in ("segment", "amplitude", "orders"):
            lines = retail(source)[number * LINES : (number + 1) * LINES]
            installation.publish(source, lines, f"{number:06d}.jsonl")


def test_a_flow_goes_on_from_a_backup_as_if_nothing_had_happened(tmp_path: Path, shop: Shop) -> None:
    undisturbed = Installation(tmp_path / "undisturbed", shop)
    published(undisturbed, range(FILES))
    undisturbed.run()

    lost = Installation(tmp_path / "lost", shop, max_files_per_batch=2)
    published(lost, range(FILES // 2))
    process = lost.start()
    try:
        until(lambda: len(lost.batches()) >= 3 or process.poll() is not None, what="some micro-batches")
        assert process.poll() is None, (lost.folder / "flow.err").read_text()
        # In the middle of the flow's work, which goes on meanwhile.
        published(lost, range(FILES // 2, FILES - 2))
        lost.command("backup", str(tmp_path / "backup"))
        at_backup = len(lost.batches())
        until(lambda: len(lost.batches()) > at_backup or process.poll() is not None, what="more of them")
    finally:
        kill_tree(process)

    elsewhere = str(tmp_path / "elsewhere")

    def there(*words: str) -> bytes:
        return lost.command(*words, IDGRAPH_DIRECTORY=elsewhere).stdout

    said = lost.command("restore", str(tmp_path / "backup"), IDGRAPH_DIRECTORY=elsewhere).stderr.decode()
    assert "the flow also makes the search index again" in said
    published(lost, range(FILES - 2, FILES))
    # What it had not taken by then, and what came since.
    batches = lost.run(IDGRAPH_DIRECTORY=elsewhere)
    assert 0 < sum(each["files"] for each in batches) < 3 * FILES
    assert there("export") == undisturbed.export()
    assert there("export", "--provenance") == undisturbed.export("--provenance")
    # Of no drift.
    there("reconcile")
