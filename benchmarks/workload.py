"""The retail data replayed for many shops, so that the number of fragments grows with the events."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "retail"
SOURCES = ("segment", "amplitude", "orders")
CUSTOMERS = 100_000
"""Customer numbers of each shop."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def events(source: str) -> list[dict[str, Any]]:
    """One shop's events of a source, in their order of arrival."""
    with gzip.open(EXAMPLE / "data" / f"{source}.jsonl.gz") as stream:
        return [_decode(line) for line in stream]


def renamed(source: str, event: dict[str, Any], shop: int) -> bytes:
    """An event as it would have come from another shop: other people, other event ids."""
    event = dict(event)
    if source == "segment":
        _number(event, "userId", shop)
        _name(event, "anonymousId", shop)
        event["messageId"] = f"{event['messageId']}-{shop}"
        _cart(event, "properties", "cartId", shop)
        _address(event, "traits", shop)
    elif source == "amplitude":
        _number(event, "user_id", shop)
        _name(event, "device_id", shop)
        event["insert_id"] = f"{event['insert_id']}-{shop}"
        _cart(event, "event_properties", "cartId", shop)
        _address(event, "user_properties", shop)
    else:
        event["order_id"] = f"{event['order_id']}-{shop}"
        _cart(event, "cart", "id", shop)
        _address(event, "customer", shop)
    return _encode(event) + b"\n"


def _number(event: dict[str, Any], key: str, shop: int) -> None:
    """One source writes zeros in front of a customer's number and another does not: it stays one number."""
    if key in event:
        given: str = event[key]
        zeros = "0" * (len(given) - len(given.lstrip("0")))
        event[key] = f"{zeros}{shop * CUSTOMERS + int(given)}"


def _name(event: dict[str, Any], key: str, shop: int) -> None:
    if key in event:
        event[key] = f"{event[key]}-{shop}"


def _cart(event: dict[str, Any], key: str, name: str, shop: int) -> None:
    if name in event.get(key, ()):
        event[key] = {**event[key], name: f"{event[key][name]}-{shop}"}


def _address(event: dict[str, Any], key: str, shop: int) -> None:
    if "email" in event.get(key, ()):
        event[key] = {**event[key], "email": f"{shop}.{event[key]['email'].strip()}"}


Change = Callable[[str, int, dict[str, Any]], dict[str, Any]]
"""Gives an event in place of another one, given its source and its number in it."""


def write_inbox(inbox: Path, shops: int, lines_per_file: int = 10_000, change: Change | None = None) -> int:
    """Fill an inbox with the events of many shops; gives how many. Files in a realistic mix of sources."""
    total = 0
    for shop in range(1, shops + 1):
        for source in SOURCES:
            folder = inbox / source
            folder.mkdir(parents=True, exist_ok=True)
            month = events(source)
            if change is not None:
                month = [change(source, number, event) for number, event in enumerate(month)]
            lines = [renamed(source, event, shop) for event in month]
            for start in range(0, len(lines), lines_per_file):
                name = f"{shop:05d}-{start:07d}.jsonl"
                (folder / name).write_bytes(b"".join(lines[start : start + lines_per_file]))
            total += len(lines)
    return total


def endless(source: str, first_shop: int = 1) -> Iterator[bytes]:
    """Events of one source, shop after shop, for ever."""
    original = events(source)
    for shop in count(first_shop):
        for event in original:
            yield renamed(source, event, shop)


def lay_out(folder: Path, port: int, flow: str = "") -> Path:
    """A folder to run the example's configuration in; gives the configuration file.

    `flow` stands in its `[flow]` table in place of what the example says for its progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = (EXAMPLE / "idgraph.toml").read_text().replace(":8410", f":{port}")
    text = text.replace("max_files_per_batch = 12\n", flow)
    config = folder / "idgraph.toml"
    config.write_text(text)
    return config


def clear(folder: Path) -> None:
    """Remove a folder of an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
