"""An installation with some of the shop's events, and what can be done to its flow."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from idgraph.app import wiring
from idgraph.app.settings.document import load
from idgraph.model import canonical
from idgraph.model.queries import Query
from tests.crashes.points import Point, dying
from tests.installation import Installation, Shop, kill_tree, retail, until

FLOW: dict[str, Any] = {
    "split_bytes": 120_000,
    "max_files_per_batch": 5,
    "commit_fragments": 60,
    "combine_events": 300,
}
"""Small enough for several micro-batches, tasks and writes."""

FLOW_GOES_ON = ("worker", "projection")
"""Processes that the driver replaces."""

SHARES = {"segment": 1200, "amplitude": 900, "orders": 500}
LINES_A_FILE = 300
PATIENCE = 240.0
"""Seconds that a flow may take on a busy machine, its start included."""
BAD_LINE = b"{ not JSON\n"


def events(source: str) -> list[bytes]:
    """A source's events, shuffled, some twice, one bad."""
    lines = retail(source)[: SHARES[source]]
    lines += lines[:100]
    random.Random(source).shuffle(lines)
    return [*lines, BAD_LINE]


class Scene:
    """One installation in a folder of its own."""

    def __init__(self, folder: Path, shop: Shop, **flow: Any) -> None:
        self.folder = folder
        self.shop = shop
        self.installation = Installation(folder, shop, **(FLOW | flow))
        self.runs = 0
        self.deaths = 0

    def publish(self, *sources: str, part: slice = slice(None)) -> None:
        """Publish events of sources, or some of their files."""
        for source in sources or SHARES:
            for name, lines in list(_files(source))[part]:
                self.installation.publish(source, lines, name)

    def run(self, **environment: str) -> list[dict[str, Any]]:
        """Run until all that is there is done; it must come through."""
        self.runs += 1
        return self.installation.run(0, **environment)

    def die_at(self, point: Point, killed: str) -> None:
        """Run until a process was killed at a point: it alone, or all at once with it (`machine`)."""
        self.runs += 1
        marker = self.folder / "died"
        process = self.installation.start("--until-done", **dying(point.death(marker, killed == "machine")))
        try:
            until(
                lambda: marker.exists() or process.poll() is not None, PATIENCE, f"the point ({point.words})"
            )
            assert marker.exists(), f"no process came by: {self._said()}"
            if killed in FLOW_GOES_ON:
                assert process.wait(PATIENCE) == 0, self._said()
        finally:
            if killed not in FLOW_GOES_ON or process.poll() is None:
                _end(process, killed)
        self.deaths += 1

    def lose_workers_at(self, points: Sequence[Point]) -> None:
        """Run until all is done, while a worker kills itself at each of these points."""
        self.runs += 1
        markers = {point: self.folder / f"died-{number}" for number, point in enumerate(points)}
        process = self.installation.start(
            "--until-done", **dying(*(point.death(marker) for point, marker in markers.items()))
        )
        assert process.wait(2 * PATIENCE) == 0, self._said()
        missed = [point.words for point, marker in markers.items() if not marker.exists()]
        assert not missed, f"no worker came by: {', '.join(missed)}"
        self.deaths += len(points)

    def _said(self) -> str:
        return (self.folder / "flow.err").read_text(errors="replace")[-2000:]

    def kill_at_random(self, seed: int, after_batches: int = 1) -> None:
        """Run, and kill all at once some time after so many micro-batches more are done."""
        self.runs += 1
        done = len(self.installation.batches())
        process = self.installation.start("--until-done")
        until(
            lambda: len(self.installation.batches()) >= done + after_batches or process.poll() is not None,
            PATIENCE,
        )
        time.sleep(random.Random(seed).uniform(0, 0.5))
        kill_tree(process)
        self.deaths += 1

    def checkpoint(self) -> Path:
        """The flow's checkpoint."""
        return self.folder / ".idgraph" / "flows" / "shop" / "checkpoint"

    def lose_checkpoint(self) -> None:
        """Remove it."""
        shutil.rmtree(self.checkpoint())

    def tear(self, *places: str, keep: float = 0.5) -> None:
        """Cut the newest file of places in the checkpoint, as a power cut does; `keep` is the share that stays."""
        for place in places:
            path = self.checkpoint() / place
            newest = max(_numbered(path), key=lambda file: int(file.name)) if path.is_dir() else path
            content = newest.read_bytes()
            newest.write_bytes(content[: int(len(content) * keep)])

    def waits_for_the_index(self) -> bool:
        """Whether something was stored that is not indexed yet."""
        with wiring.opened(load(self.installation.config)) as resources:
            return bool(resources.store.outbox())

    def differences(self, reference: Scene) -> list[str]:
        """How it differs from another scene of the same events; empty if in nothing."""
        found = []
        with wiring.opened(load(self.installation.config)) as resources:
            if resources.store.outbox():
                found.append("the outbox is not empty")
            indexed = resources.index.count(Query())
        files = [each.exported() for each in (self, reference)]
        if indexed != files[0].read_bytes().count(b"\n"):
            found.append("the index")
        if subprocess.run(["cmp", *files], check=False, capture_output=True).returncode != 0:
            found.append("the export")
        if self.dead_letters() != reference.dead_letters():
            found.append("dead letters")
        return found

    def exported(self) -> Path:
        """What `idgraph export --provenance --reveal` writes."""
        file = self.folder / "profiles.jsonl"
        settings = load(self.installation.config)
        if not file.exists():
            with wiring.opened(settings) as resources, file.open("wb") as stream:
                for profile in wiring.profile_reader(settings, resources).scan(reveal=True):
                    stream.write(canonical.encode(profile.canonical(True)) + b"\n")
            assert file.stat().st_size > 0
        return file

    def dead_letters(self) -> set[tuple[str, str]]:
        """Sources and reasons of all dead letters; their positions name files, which may have other names."""
        with wiring.opened(load(self.installation.config)) as resources:
            return {
                (dead_letter.source, str(dead_letter.reason)) for dead_letter in resources.dead_letters.scan()
            }


def _files(source: str) -> Iterator[tuple[str, list[bytes]]]:
    lines = events(source)
    for number, start in enumerate(range(0, len(lines), LINES_A_FILE)):
        yield f"{number:04d}.jsonl", lines[start : start + LINES_A_FILE]


def _numbered(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.name.isdecimal()]


def _end(process: subprocess.Popen[bytes], killed: str) -> None:
    if killed == "driver":
        # It alone: its JVM and workers are left to notice, and may still write beside the next run.
        process.wait(60)
    else:
        kill_tree(process)


@contextmanager
def second_flow(scene: Scene, *sources: str) -> Iterator[Installation]:
    """Another flow on the store of a scene, with the files of some of its sources as its own."""
    folder = scene.folder / "second"
    second = Installation(folder, scene.shop, **(FLOW | {"name": "second"}))
    text = second.config.read_text()
    second.config.write_text(f"directory = {json.dumps(str(scene.folder / '.idgraph'))}\n{text}")
    for source in sources:
        for name, lines in _files(source):
            second.publish(source, lines, f"second-{name}")
    yield second
