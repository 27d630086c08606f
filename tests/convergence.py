"""Law 1 as a machine: events of two sources, under policies and specs that change, delivered in every disorder to
real stores by committers that race and crash, end in the state of one tidy delivery.

The long run: `python -m tests.convergence --minutes 60`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ingestion.configuration import FileSource, FlowConfig
from ingestion.map_output import MapOutput
from merge.store import FragmentWrite, ProfileStore
from model.attributes import AttributeMetadata, ReconciliationPolicy
from model.events import RawRecord
from model.snapshots import MetadataSnapshot
from model.specs import SpecDocument
from sinks.memory_data_keys import MemoryDataKeys
from sinks.memory_profiles import MemoryProfileStore
from sinks.sqlite_profiles import SqliteProfileStore
from tests.policies import small_blocks, small_bounds
from tests.retail import NOW, UNDETECTED, Pipeline, attribute, raw

SOURCES = {name: FileSource(name=name, path=Path(name)) for name in ("delta", "state")}
KEYS = MemoryDataKeys()
TYPES = {"a": "number", "a.b": "number", "c": "number", "p": "string"}
SEALED = ("latest", "first", "append", "count", "union", "source_priority")
Pair = tuple[RawRecord, int]
"""A record and the version of the snapshot that maps it."""

ABSENT = "absent"
FUTURE = int(NOW * 1000) * 2
numbers = st.sampled_from([1, 2, 3, 0.1, 0.2, 10**20, -1, "text", None, [1, 2], ABSENT])
texts = st.sampled_from(["x", "y", "z", 1, None, ABSENT])
payloads = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["e1", "e1", "e2"]),
        "ts": st.sampled_from([*range(1, 9), FUTURE]),
        "u": st.sampled_from(["1", "1", "1", "2"]),
        "a": numbers,
        "c": numbers,
        "p": texts,
    }
).map(lambda payload: {key: value for key, value in payload.items() if value is not ABSENT})
policies = st.sampled_from([*ReconciliationPolicy])


def spec(source: str, version: int, nested: bool, priority: int, scope: str) -> SpecDocument:
    """`nested` writes below the path that the other form writes; the source `state` sends snapshots of `scope`."""
    shift = {"id": "_event.id", "ts": "_event.ordinal", "u": "u.id", "c": "c", "p": "p"}
    shift["a"] = "a.b" if nested else "a"
    return SpecDocument(
        name=source,
        source=source,
        version=version,
        created=datetime(2024, 1, 1, tzinfo=UTC),
        operations=[{"operation": "shift", "spec": shift}],
        id="_event.id",
        ordinal="_event.ordinal",
        identifiers=({"type": "u", "path": "u.id", "primary": True},),
        mode="snapshot" if source == "state" else "delta",
        scope=scope if source == "state" else "",
        priority=priority,
        status="active",
    )


def declared(path: str, policy: str) -> AttributeMetadata:
    stated: dict[str, Any] = {"policy": policy}
    if policy == "source_priority":
        stated["sources"] = ("state", "delta")
    if path == "p":
        stated["encryption"] = "searchable"
    return attribute(path, TYPES[path], **stated)


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """One keyring for all runs: other keys seal to other bytes."""
    return tempfile.TemporaryDirectory()


class _Raced:
    """Between read and write another committer may come: it is run before the first write."""

    def __init__(self) -> None:
        self.other: Any = None

    def meet(self) -> None:
        other, self.other = self.other, None
        if other is not None:
            other()


class RacedMemory(MemoryProfileStore, _Raced):
    def __init__(self) -> None:
        MemoryProfileStore.__init__(self)
        _Raced.__init__(self)

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        self.meet()
        return super().write(writes)


class RacedSqlite(SqliteProfileStore, _Raced):
    def __init__(self, path: Path) -> None:
        SqliteProfileStore.__init__(self, path, str.encode)
        _Raced.__init__(self)

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        self.meet()
        return super().write(writes)


class ConvergenceMachine(RuleBasedStateMachine):
    """`pairs` is all that was mapped; each store has been given each of them at least once, or will be."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.small = ExitStack()
        self.small.enter_context(small_bounds(3))
        self.small.enter_context(small_blocks())
        self.memory = RacedMemory()
        self.sqlite = RacedSqlite(Path(self.folder.name) / "profiles.db")
        self.pool: list[RawRecord] = []
        self.pairs: list[Pair] = []
        self.held: list[tuple[ProfileStore, MapOutput]] = []
        self.policies = dict.fromkeys(TYPES, "latest")
        self.specs = dict.fromkeys(SOURCES, (1, False, 0, ""))
        self.snapshots: dict[int, MetadataSnapshot] = {}

    @initialize(
        a=policies,
        below=policies,
        c=policies,
        sealed=st.sampled_from(SEALED),
        some=st.lists(payloads, min_size=5),
    )
    def begin(
        self,
        a: ReconciliationPolicy,
        below: ReconciliationPolicy,
        c: ReconciliationPolicy,
        sealed: str,
        some: list[dict[str, Any]],
    ) -> None:
        self.policies = {"a": a.value, "a.b": below.value, "c": c.value, "p": sealed}
        self._save()
        self.publish("delta", some)

    def _save(self) -> None:
        version = len(self.snapshots) + 1
        self.snapshots[version] = MetadataSnapshot(
            version=version,
            specs=tuple(spec(source, *stated) for source, stated in self.specs.items()),
            attributes=tuple(declared(path, policy) for path, policy in self.policies.items()),
            defaults=UNDETECTED,
        )

    @rule(path=st.sampled_from(["a", "a.b", "c"]), policy=policies)
    def change_a_policy(self, path: str, policy: ReconciliationPolicy) -> None:
        self.policies[path] = policy.value
        self._save()

    @rule(policy=st.sampled_from(SEALED))
    def change_the_policy_of_the_sealed_attribute(self, policy: str) -> None:
        self.policies["p"] = policy
        self._save()

    @rule(
        source=st.sampled_from(list(SOURCES)),
        nested=st.booleans(),
        priority=st.integers(0, 1),
        scope=st.sampled_from(["", "a", "c"]),
    )
    def edit_a_spec(self, source: str, nested: bool, priority: int, scope: str) -> None:
        self.specs[source] = self.specs[source][0] + 1, nested, priority, scope
        self._save()

    @rule(source=st.sampled_from(list(SOURCES)), some=st.lists(payloads, min_size=3, max_size=10))
    def publish_some(self, source: str, some: list[dict[str, Any]]) -> None:
        self.publish(source, some)

    def publish(self, source: str, some: list[dict[str, Any]]) -> None:
        self.pool += [raw(payload, len(self.pool) + n, source) for n, payload in enumerate(some)]
        self.deliver(self.pool[-len(some) :], 1, 2)

    @rule(data=st.data(), memory_at_once=st.integers(1, 4), sqlite_at_once=st.integers(1, 4))
    def deliver_again(self, data: st.DataObject, memory_at_once: int, sqlite_at_once: int) -> None:
        """Some events, maybe under a newer snapshot than before."""
        if self.pool:
            chosen = data.draw(st.lists(st.sampled_from(self.pool), min_size=1, max_size=8))
            self.deliver(chosen, memory_at_once, sqlite_at_once)

    def deliver(self, records: list[RawRecord], memory_at_once: int, sqlite_at_once: int) -> None:
        now = len(self.snapshots)
        self.pairs += [(record, now) for record in records]
        self._give(self.memory, [(record, now) for record in records], memory_at_once)
        self._give(self.sqlite, [(record, now) for record in reversed(records)], sqlite_at_once)

    def _give(self, store: ProfileStore, pairs: Sequence[Pair], at_once: int) -> None:
        for start in range(0, len(pairs), at_once):
            for output in self._mapped(store, pairs[start : start + at_once]):
                self._commit(store, output)

    def _pipeline(self, store: ProfileStore, version: int, combine: int = 60_000) -> Pipeline:
        return Pipeline(
            Path(folder().name), KEYS, store, sources=SOURCES, snapshot=self.snapshots[version],
            flow=FlowConfig(combine_events=combine),
        )  # fmt: skip

    def _mapped(self, store: ProfileStore, pairs: Sequence[Pair]) -> list[MapOutput]:
        """A micro-batch has one snapshot."""
        outputs: list[MapOutput] = []
        for version in sorted({version for _, version in pairs}):
            stage = self._pipeline(store, version, combine=2).map_stage()
            outputs += stage.run([record for record, its in pairs if its == version])
        return outputs

    def _commit(self, store: ProfileStore, output: MapOutput, share: int = 1) -> None:
        stage = self._pipeline(store, len(self.snapshots)).commit_stage()
        stage.committer._sleep = lambda _: None
        stage.run([*output.fragments.items()][::share])

    @rule(data=st.data())
    def hold_back(self, data: st.DataObject) -> None:
        """A task maps events, and is slow to commit."""
        if self.pool:
            now = len(self.snapshots)
            pairs = [
                (each, now)
                for each in data.draw(st.lists(st.sampled_from(self.pool), min_size=1, max_size=5))
            ]
            self.pairs += pairs
            for store in (self.memory, self.sqlite):
                self.held += [(store, output) for output in self._mapped(store, pairs)]

    @rule()
    def release(self) -> None:
        held, self.held = self.held, []
        for store, output in reversed(held):
            self._commit(store, output)

    @rule(data=st.data())
    def race(self, data: st.DataObject) -> None:
        """Two committers, of which one writes between the other's read and write."""
        if not self.pool:
            return
        now = len(self.snapshots)
        one, other = (
            [(each, now) for each in data.draw(st.lists(st.sampled_from(self.pool), min_size=1, max_size=4))]
            for _ in range(2)
        )
        self.pairs += one + other
        for store in (self.memory, self.sqlite):
            store.other = lambda store=store: self._give(store, other, 2)
            self._give(store, one, 4)
            store.meet()

    @rule(data=st.data())
    def crash_and_do_it_again(self, data: st.DataObject) -> None:
        """A batch is cut short: half of its fragments are written. Then all of it is given again."""
        if self.pairs:
            pairs = data.draw(st.lists(st.sampled_from(self.pairs), min_size=1, max_size=8))
            for store in (self.memory, self.sqlite):
                for output in self._mapped(store, pairs):
                    self._commit(store, output, share=2)
                self._give(store, pairs, 8)

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = RacedSqlite(Path(self.folder.name) / "profiles.db")
        self.held = [(self.sqlite if isinstance(s, RacedSqlite) else s, output) for s, output in self.held]

    @rule()
    def compare(self) -> None:
        """What is still held back is written first."""
        self.release()
        tidy = MemoryProfileStore()
        for output in self._mapped(
            tidy, sorted(set(self.pairs), key=lambda pair: (pair[0].position, pair[1]))
        ):
            self._commit(tidy, output)
        expected = self._pipeline(tidy, len(self.snapshots))
        for store in (self.memory, self.sqlite):
            assert states(store) == states(tidy)
            found = self._pipeline(store, len(self.snapshots))
            assert found.export() == expected.export()
            assert found.export(reveal=True) == expected.export(reveal=True)

    def teardown(self) -> None:
        try:
            if self.snapshots:
                self.compare()
        finally:
            self.small.close()
            self.sqlite.close()
            self.folder.cleanup()


def states(store: ProfileStore) -> dict[str, bytes]:
    return {each.id: each.state for each in store.scan(limit=1000)}


def run(examples: int, steps: int, number: int | None = None) -> None:
    """Raises what the machine found; `number` makes a run that can be made again."""
    run_state_machine_as_test(
        ConvergenceMachine if number is None else seed(number)(ConvergenceMachine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.convergence", description="Law 1, for long.")
    parser.add_argument("--minutes", type=float, default=60)
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    rounds = 0
    while time.monotonic() < end:
        number = random.randrange(2**32)
        print(f"round {rounds}, seed {number}", flush=True)
        run(200, 40, number)
        rounds += 1


if __name__ == "__main__":
    main()
