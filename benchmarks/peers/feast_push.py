"""Feast pushing mapped rows to its SQLite online store. Runs in a virtual environment of its own, where Feast is.

python feast_push.py MAPPED FOLDER SECONDS

`MAPPED` holds Parquet files by source: person, at (epoch milliseconds), a text column an attribute.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, PushSource, RepoConfig, ValueType
from feast.data_source import PushMode
from feast.types import String

ROWS_A_PUSH = 1000


def main(mapped: Path, folder: Path, seconds: float) -> None:
    folder.mkdir(parents=True)
    sources = sorted(path for path in mapped.iterdir() if path.is_dir())
    frames = {path.name: rows(path) for path in sources}
    store = opened(folder, frames)
    started, cpu = time.monotonic(), time.process_time()
    pushed = 0
    for name, frame in frames.items():
        deadline = started + seconds * (list(frames).index(name) + 1) / len(frames)
        for start in range(0, len(frame), ROWS_A_PUSH):
            store.push(name, frame.iloc[start : start + ROWS_A_PUSH], to=PushMode.ONLINE)
            pushed += min(ROWS_A_PUSH, len(frame) - start)
            if time.monotonic() > deadline:
                break
    figures = {
        "rows": pushed,
        "of": sum(map(len, frames.values())),
        "seconds": time.monotonic() - started,
        "cpu_seconds": time.process_time() - cpu,
        "store_bytes": sum(path.stat().st_size for path in folder.glob("online*")),
    }
    print(json.dumps(figures))


def rows(path: Path) -> pd.DataFrame:
    """The rows of one source in their order, with Feast's column of event times."""
    frame = pd.read_parquet(path)
    frame = frame[frame["person"].notna()]
    frame["event_timestamp"] = pd.to_datetime(frame.pop("at").astype("int64"), unit="ms", utc=True)
    return frame.reset_index(drop=True)


def opened(folder: Path, frames: dict[str, pd.DataFrame]) -> FeatureStore:
    """A feature view and a push source for each source, whose columns one event of it has together."""
    config: dict[str, Any] = {
        "project": "peers",
        "provider": "local",
        "registry": str(folder / "registry.db"),
        "online_store": {"type": "sqlite", "path": str(folder / "online.db")},
        "offline_store": {"type": "file"},
        "entity_key_serialization_version": 3,
    }
    store = FeatureStore(config=RepoConfig(**config))
    person = Entity(name="person", join_keys=["person"], value_type=ValueType.STRING)
    views: list[Any] = [person]
    for name, frame in frames.items():
        batch = FileSource(
            name=f"{name}_batch", path=str(folder / f"{name}.parquet"), timestamp_field="event_timestamp"
        )
        frame.head(0).to_parquet(folder / f"{name}.parquet")
        source = PushSource(name=name, batch_source=batch)
        features = [Field(name=column, dtype=String) for column in frame.columns[1:-1]]
        views.append(
            FeatureView(
                name=f"{name}_view",
                entities=[person],
                schema=features,
                source=source,
                online=True,
                ttl=timedelta(days=36500),
            )
        )
    store.apply(views)
    return store


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
