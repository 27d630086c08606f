"""An installation of idgraph in a folder, used as its users use it: through the command line.

All installations of a test session share one metadata service (the real one, in a thread of this process)
and one keyring, so that their exports can be compared byte for byte.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idgraph.app import wiring
from idgraph.app.adapters.inputs import needed_jars
from idgraph.app.settings.document import load
from idgraph.model import canonical
from tests.shared_java import shared_java

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROGRAM = [sys.executable, "-m", "idgraph.app.cli"]
RUN_SECONDS = 400
FLOWS = ("run", "backfill", "resolve")
"""Commands that start Spark."""


@dataclass(frozen=True)
class Shop:
    """What installations share: the service's URL, a token, a keyring file."""

    url: str
    token: str
    keyring: Path


def retail(source: str) -> list[bytes]:
    """The lines of one source of the retail example, in their order of arrival."""
    with gzip.open(EXAMPLES / "retail" / "data" / f"{source}.jsonl.gz") as stream:
        return stream.read().splitlines(keepends=True)


class Installation:
    """One folder with a configuration of its own. `flow` overrides keys of `[flow]`; `store`, `index`, `spark`, `kafka`,
    `pulsar`, `keys` and `metrics` are those of the tables of these names, `decryptor` that of each source. With `topics`, what their
    names begin with, the sources are in Kafka, or in Pulsar with `pulsar`.

    Its processes run under a umask that protects nothing: what they write is private by their own doing."""

    def __init__(self, folder: Path, shop: Shop, **flow: Any) -> None:
        self.folder = folder
        self._shop = shop
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "idgraph.toml"
        settings = {"name": "shop", "driver_memory": "512m", **flow}
        limits = settings.pop("dead_letters", None)
        tables = {
            name: settings.pop(name, {})
            for name in ("store", "index", "spark", "kafka", "pulsar", "keys", "metrics")
        }
        topics = settings.pop("topics", None)
        decryptor = settings.pop("decryptor", None)
        kind_of_topics = "pulsar" if tables["pulsar"] else "kafka"
        sources = "".join(
            f'[[sources]]\nname = "{name}"\ntype = {kind}\n'
            + (
                f'path = "inbox/{name}"\n'
                if topics is None
                else f'kind = "{kind_of_topics}"\ntopics = ["{topics}{name}"]\n'
            )
            + (f"decryptor = {_toml(decryptor)}\n" if decryptor else "")
            for name, kind in (
                ("segment", '{ path = "type" }'),
                ("amplitude", '{ path = "event_type" }'),
                ("orders", '{ const = "order" }'),
            )
        )
        self.config.write_text(
            f'keyring = "{shop.keyring}"\n[metadata]\nurl = "{shop.url}"\ntoken = "{shop.token}"\n'
            + "".join(
                f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
                for name, table in {**tables, "flow": settings}.items()
            )
            + (
                "".join(["[flow.dead_letters]\n", *(f"{k} = {v}\n" for k, v in limits.items())])
                if limits
                else ""
            )
            + sources
        )

    def publish(self, source: str, lines: Iterable[bytes], name: str | None = None) -> Path:
        """Put lines into a source's folder as one file, by rename."""
        inbox = self.folder / "inbox" / source
        inbox.mkdir(parents=True, exist_ok=True)
        name = name or f"{len(list(inbox.iterdir())):06d}.jsonl"
        part = inbox / f".{name}"
        content = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
        part.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return part.rename(inbox / name)

    def command(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end; asserts its exit code. A flow has the tests' Java process, unless more is given to it than
        settings."""
        is_flow = words[0] in FLOWS and all(name.startswith("IDGRAPH_") for name in environment)
        with self._shared_java() if is_flow else nullcontext() as java:
            done = subprocess.run(
                [*PROGRAM, "-c", str(self.config), *words],
                check=False,
                capture_output=True,
                timeout=RUN_SECONDS,
                env=self._environment(environment | (java or {})),
                umask=0,
            )
            assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-4000:])
        return done

    def run(self, code: int = 0, **environment: str) -> list[dict[str, Any]]:
        """Run the flow until what is there is done; gives the micro-batches' reports."""
        done = self.command("run", "--until-done", "--json", code=code, **environment)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start the flow in the background; its output goes to `flow.out` and `flow.err`."""
        return self.spawn("flow", "run", "--json", *words, **environment)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """The flow in the background with the tests' Java process, which must end well when it is asked to, at the end."""
        with self._shared_java() as java:
            process = self.spawn("flow", *words, "run", "--json", **(java or {}))
            try:
                yield process
                process.terminate()
                assert process.wait(RUN_SECONDS) == 0
            finally:
                if process.poll() is None:
                    kill_tree(process)

    def spawn(self, name: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command in the background; its output goes to `NAME.out` and `NAME.err`."""
        with (self.folder / f"{name}.out").open("ab") as out, (self.folder / f"{name}.err").open("ab") as err:
            return subprocess.Popen(
                [*PROGRAM, "-c", str(self.config), *words],
                stdout=out,
                stderr=err,
                env=self._environment(environment),
                umask=0,
            )

    def batches(self, name: str = "flow") -> list[dict[str, Any]]:
        """The reports of a flow in the background so far."""
        output = self.folder / f"{name}.out"
        lines = output.read_bytes().splitlines(keepends=True) if output.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def export(self, *words: str) -> bytes:
        """What `idgraph export` writes."""
        return self.command("export", *words).stdout

    def profiles(self) -> bytes:
        """All profiles with where each value came from, masked, then with what the sealed bytes hold."""
        return profiles_by(self.config)

    def dead_letters(self) -> list[dict[str, Any]]:
        """All dead letters as `list --json` reports them."""
        done = self.command("dead-letters", "list", "--json", "--limit", "100000")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def temporary(self) -> Path:
        """Where its processes put their temporary files."""
        folder = self.folder / "tmp"
        folder.mkdir(exist_ok=True)
        return folder

    def _shared_java(self) -> AbstractContextManager[dict[str, str] | None]:
        return shared_java(*needed_jars(load(self.config)))

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        temporary = str(self.temporary())
        return {
            **os.environ,
            "TMPDIR": temporary,
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
            "PYTHONPATH": str(EXAMPLES.parent),
            **more,
        }


def profiles_by(config: Path) -> bytes:
    """What two exports give, with where each value came from, masked and revealed; no process is started for each."""
    settings = load(config)
    with wiring.opened(settings) as resources:
        reader = wiring.profile_reader(settings, resources)
        return b"".join(
            canonical.encode(profile.canonical(True)) + b"\n"
            for reveal in (False, True)
            for profile in reader.scan(reveal=reveal)
        )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def until(condition: Any, seconds: float = 240, what: str = "it") -> None:
    """Wait until a condition holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """kill -9 a process and all its descendants at once, as a power cut of the machine would."""
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """The Python workers that Spark has forked by now, without the daemon that forks them."""
    daemons = [pid for pid in descendants(process.pid) if b"pyspark.daemon" in _command(pid)]
    return daemons[1:]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def descendants(root: int) -> list[int]:
    """A process and all below it, parents first."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().split(" ", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(rest.rsplit(")", 1)[1].split()[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(parents.get(pid, []))
    return found
