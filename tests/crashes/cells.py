"""The cells of the crash matrix: where, what is killed, under which strategy. Each ends with what must be the
same export as that of a run that nothing disturbed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.crashes.points import POINTS, Point
from tests.crashes.scenes import FLOW_GOES_ON, PATIENCE, Scene, events, second_flow
from tests.installation import Shop, kill_tree, until

STRATEGIES = ("low_latency", "high_throughput")


class Cell(NamedTuple):
    """One cell; `play` runs it in a folder and gives the scene as it ended."""

    where: str
    killed: str
    strategy: str
    play: Callable[[Path, Shop], Scene]

    def name(self) -> str:
        """In words, to choose it by."""
        return f"{self.where}, {self.killed}, {self.strategy}"


def at_point(point: Point, killed: str, strategy: str) -> Cell:
    """A process, or all at once, killed at a point of the code."""

    def play(folder: Path, shop: Shop) -> Scene:
        scene = Scene(folder, shop, strategy=strategy)
        scene.publish()
        scene.die_at(point, killed)
        if killed not in FLOW_GOES_ON:
            scene.run()
        elif killed == "worker" and not any(batch["attempts"] > 1 for batch in scene.installation.batches()):
            raise AssertionError("the worker died, and no micro-batch was retried")
        return scene

    return Cell(point.reported(), killed, strategy, play)


class Together(NamedTuple):
    """Cells that one scene plays in turn, to start Spark once for all of them."""

    cells: list[Cell]
    play: Callable[[Path, Shop], Scene]


def workers_lost(strategy: str) -> Together:
    """A worker killed at each of its points, in one run of a flow that gives its micro-batches again often enough."""
    points = [point for point in POINTS if point.role == "worker"]

    def play(folder: Path, shop: Shop) -> Scene:
        scene = Scene(folder, shop, strategy=strategy, batch_retries=2 * len(points))
        scene.publish()
        scene.lose_workers_at(points)
        return scene

    return Together([at_point(point, "worker", strategy) for point in points], play)


def random_kills(folder: Path, shop: Shop, strategy: str, seed: int) -> Scene:
    """Everything killed at some time, three times."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish()
    for number in range(3):
        scene.kill_at_random(seed + number)
    scene.run()
    return scene


def torn(folder: Path, shop: Shop, strategy: str, places: tuple[str, ...], keep: float) -> Scene:
    """Files of the checkpoint interrupted between two runs."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish(part=slice(None, None, 2))
    scene.run()
    scene.tear(*places, keep=keep)
    scene.publish(part=slice(1, None, 2))
    scene.run()
    return scene


def checkpoint_lost(folder: Path, shop: Shop, strategy: str) -> Scene:
    """The checkpoint removed between two runs."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish(part=slice(None, None, 2))
    scene.run()
    scene.lose_checkpoint()
    scene.publish(part=slice(1, None, 2))
    scene.run()
    return scene


def other_names(folder: Path, shop: Shop, strategy: str) -> Scene:
    """All files retried under other names, while they are read the first time."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish()
    for file in sorted((folder / "inbox").glob("*/*.jsonl")):
        shutil.copy(file, file.with_name(f"again-{file.name}"))
    scene.kill_at_random(7)
    scene.run()
    return scene


def other_parallelism(folder: Path, shop: Shop, strategy: str) -> Scene:
    """Everything killed in mid-batch, and run again with other numbers of everything."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish()
    scene.die_at(next(point for point in POINTS if point.words == "the store has written"), "machine")
    other = next(each for each in STRATEGIES if each != strategy)
    scene.run(
        IDGRAPH_FLOW__MASTER="local[3]",
        IDGRAPH_FLOW__PARTITIONS="5",
        IDGRAPH_FLOW__COMMIT_FRAGMENTS="13",
        IDGRAPH_FLOW__COMBINE_EVENTS="97",
        IDGRAPH_FLOW__MAX_FILES_PER_BATCH="2",
        IDGRAPH_FLOW__STRATEGY=other,
    )
    return scene


def two_flows(folder: Path, shop: Shop, strategy: str) -> Scene:
    """Two flows with the same events on one store; one is killed while the other continues."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish()
    with second_flow(scene, "segment", "orders") as second:
        process = second.start("--until-done")
        scene.runs += 1
        first = scene.installation.start("--until-done")
        until(lambda: second.batches() or process.poll() is not None, PATIENCE, "the second flow's batch")
        kill_tree(process)
        scene.deaths += 1
        assert first.wait(PATIENCE) == 0
        second.run()
    return scene


def backfill(folder: Path, shop: Shop, strategy: str) -> Scene:
    """A source's archive beside the running stream of the others; the backfill is killed, stopped, and ends."""
    scene = Scene(folder, shop, strategy=strategy)
    scene.publish("amplitude", "orders", part=slice(None, None, 2))
    archive = folder / "archive" / "segment"
    lines = events("segment")
    for start in range(0, len(lines), 100):
        file = archive / f"2024/{start // 400:02d}" / f"{start:05d}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(lines[start : start + 100]))
    scene.runs += 1
    stream = scene.installation.start()
    try:
        command = ("backfill", "segment", str(archive), "--json", "--rate", "100")
        job = scene.installation.spawn("backfill", *command)
        until(
            lambda: scene.installation.batches("backfill") or job.poll() is not None, PATIENCE, "the backfill"
        )
        assert job.poll() is None, (folder / "backfill.err").read_text()
        kill_tree(job)
        scene.deaths += 1
        scene.publish("amplitude", "orders", part=slice(1, None, 2))
        done = scene.installation.command("backfill", "segment", str(archive))
        assert b"resumes" in done.stderr, done.stderr
        theirs = sum(len(events(source)) for source in ("amplitude", "orders"))
        until(
            lambda: sum(batch["events"] for batch in scene.installation.batches()) == theirs,
            PATIENCE,
            "the stream's events",
        )
        until(lambda: not scene.waits_for_the_index(), PATIENCE, "what the backfill left in the outbox")
    finally:
        stream.send_signal(signal.SIGINT)
        assert stream.wait(PATIENCE) == 0
    return scene


def cells() -> list[Cell]:
    """All cells, in the order of the table."""
    found = []
    for number, point in enumerate(POINTS):
        if point.role == "worker":
            found += [at_point(point, "worker", strategy) for strategy in STRATEGIES]
            found.append(at_point(point, "machine", STRATEGIES[number % 2]))
        else:
            found.append(at_point(point, point.role, STRATEGIES[number % 2]))
            found.append(at_point(point, "machine", STRATEGIES[(number + 1) % 2]))
    found += [
        Cell(
            f"at random, three times (seed {seed})",
            "machine",
            strategy,
            partial(random_kills, strategy=strategy, seed=seed),
        )
        for seed, strategy in ((1, "adaptive"), (2, "low_latency"), (3, "high_throughput"))
    ]
    tears = (
        ("newest offsets", ("offsets",), 0.5),
        ("newest commit", ("commits",), 0.0),
        ("newest list of files", ("sources/0",), 0.6),
        ("the query's id", ("metadata",), 0.3),
        ("all of these", ("offsets", "commits", "sources/0", "metadata"), 0.0),
    )
    found += [
        Cell(
            f"checkpoint torn: {words}",
            "power",
            "adaptive",
            partial(torn, strategy="adaptive", places=places, keep=keep),
        )
        for words, places, keep in tears
    ]
    others = (
        ("checkpoint deleted", "-", checkpoint_lost),
        ("the same files again under other names", "machine", other_names),
        ("run again with other parallelism and batch sizes", "machine", other_parallelism),
        ("two flows on one store", "one flow", two_flows),
        ("a backfill beside the running stream", "backfill", backfill),
    )
    found += [
        Cell(where, killed, strategy, partial(play, strategy=strategy))
        for (where, killed, play), strategy in zip(others, ("adaptive", *STRATEGIES * 2), strict=True)
    ]
    return found


def groups_of_cells() -> list[Together]:
    """Cells that may be played at once."""
    return [workers_lost(strategy) for strategy in STRATEGIES]
