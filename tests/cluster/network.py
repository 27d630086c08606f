"""A network of pods on this machine: a bridge, and a namespace with an address of its own for each pod. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import ServerUnavailableError

HOST = "10.244.0.1"
"""This machine, as pods see it."""

API = "10.96.0.1"
"""The API server: the first address of services."""


class Address(NamedTuple):
    """A pod's network namespace, and its address there."""

    namespace: str
    ip: str


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """Names begin with `name`, of at most six characters."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = count(2)

    def add(self) -> Address:
        """A namespace with an address that nobody had."""
        number = next(self._numbers)
        space, outer, inner = f"{self.name}-{number}", f"{self.name}v{number}", f"{self.name}p{number}"
        ip = f"10.244.{number // 250}.{number % 250 + 2}"
        _ip("netns", "add", space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        _ip("link", "set", outer, "master", self.name, "up")
        _ip("link", "set", inner, "netns", space)
        for words in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{ip}/16", "dev", inner],
            ["link", "set", inner, "up"],
            ["route", "add", "default", "via", HOST],
        ):
            _ip("-n", space, *words)
        return Address(space, ip)

    def remove(self, address: Address) -> None:
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", address.namespace)


@contextmanager
def network() -> Iterator[Network]:
    """Raises ServerUnavailableError with the reason where this user or machine may not."""
    if os.geteuid() or not shutil.which("ip"):
        raise ServerUnavailableError("pods have namespaces of their own, which needs root and iproute2")
    made = Network(f"idg{os.getpid() % 1000}")
    try:
        _ip("link", "add", made.name, "type", "bridge")
    except subprocess.CalledProcessError as error:
        raise ServerUnavailableError(f"no bridge for pods: {error.stderr.strip()}") from None
    try:
        for ip in (f"{HOST}/16", f"{API}/32"):
            _ip("addr", "add", ip, "dev", made.name)
        _ip("link", "set", made.name, "up")
        yield made
    finally:
        for left in Path("/run/netns").glob(f"{made.name}-*"):
            made.remove(Address(left.name, ""))
        _ip("link", "del", made.name)
