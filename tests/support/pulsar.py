"""Apache Pulsar: broker, bookie and metadata (RocksDB) in one process, on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from idgraph.app.java import Artifact, JarSet
from tests.support.processes import free_port, java_and_jars, running

PULSAR = JarSet(
    "pulsar-4.0.7", (Artifact("org.apache.pulsar", "pulsar-broker", "4.0.7"),), Path(__file__).parent
)
_MAIN = "org.apache.pulsar.PulsarStandaloneStarter"
_OPENED = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/java.util.zip",
    "java.base/sun.net",
    "java.management/sun.management",
)
ANSWER_SECONDS = 60


class Standalone(NamedTuple):
    """A running server: the URL of its brokers, that of its admin interface, and its process."""

    service_url: str
    admin_url: str
    process: subprocess.Popen[bytes]


@contextmanager
def pulsar(
    folder: Path, settings: Mapping[str, object] | None = None, token: str = ""
) -> Iterator[Standalone]:
    """A server on loopback that lives as long as the context. Started again with the same folder, it has what it had, however
    it ended, and the same ports.

    `folder` takes its log and its data; `settings` are added to its own, and `token` is an administrator's, where they ask for
    one. Raises ServerUnavailableError with the reason where it cannot be had.
    """
    java, (library,) = java_and_jars(PULSAR)
    folder.mkdir(parents=True, exist_ok=True)
    noted = folder / "ports.json"
    broker, web, bookie = json.loads(noted.read_text()) if noted.exists() else [free_port() for _ in range(3)]
    noted.write_text(json.dumps([broker, web, bookie]))
    conf = folder / "standalone.conf"
    lines = {**_properties(folder, broker, web), **(settings or {})}
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
    # Java takes jars by a wildcard, not Maven's archives of native code.
    classes = ":".join([f"{library}/*", *map(str, sorted(library.glob("*.nar")))])
    command = [
        java,
        "-Xmx512m",
        "-XX:MaxDirectMemorySize=512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ]
    command += [f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED]
    command += ["-cp", classes, _MAIN, "--config", str(conf), "--no-functions-worker", "--no-stream-storage"]
    command += ["--metadata-dir", f"{folder}/metadata", "--bookkeeper-dir", f"{folder}/ledgers"]
    command += ["--bookkeeper-port", str(bookie), "-a", "127.0.0.1"]
    url = f"http://127.0.0.1:{web}"
    with running("Pulsar", command, folder / "pulsar.log", lambda: _is_ready(url, token)) as it:
        yield Standalone(f"pulsar://127.0.0.1:{broker}", url, it)


def transactions(service_url: str, topic: str, *words: str) -> list[str]:
    """The command of `PulsarTransactions.java`, which the Python client has no equal of."""
    java, (library,) = java_and_jars(PULSAR)
    classes = ":".join([f"{library}/*", *map(str, sorted(library.glob("*.nar")))])
    program = str(Path(__file__).with_name("PulsarTransactions.java"))
    return [java, "-XX:TieredStopAtLevel=1", "-cp", classes, program, service_url, topic, *words]


def _is_ready(url: str, token: str) -> bool:
    """Whether topics can be used: that comes seconds after it listens."""
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = Request(f"{url}/admin/v2/namespaces/public", headers=headers)
        with urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return "public/default" in json.load(answer)
    except (URLError, OSError, ValueError):
        return False


def _properties(folder: Path, port: int, web: int) -> dict[str, object]:
    return {
        "clusterName": "standalone",
        "brokerServicePort": port,
        "webServicePort": web,
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        # There is no other machine to copy to.
        "managedLedgerDefaultEnsembleSize": 1,
        "managedLedgerDefaultWriteQuorum": 1,
        "managedLedgerDefaultAckQuorum": 1,
        # A misspelt topic is reported, not made.
        "allowAutoTopicCreation": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "defaultNumberOfNamespaceBundles": 4,
        "loadBalancerEnabled": "false",
        "failureDomainsEnabled": "false",
        "ledgerDirectories": f"{folder}/ledgers",
        "useHostNameAsBookieID": "false",
        "nettyMaxFrameSizeBytes": 5253120,
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.99,
        # The default class is not among the jars.
        "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider",
        "dbStorage_writeCacheMaxSizeMb": 32,
        "dbStorage_readAheadCacheMaxSizeMb": 16,
        # No reader holds a ledger back: all is kept.
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }


def main() -> None:
    """Run a server for development in a folder until Ctrl-C; prints the table `[pulsar]` for it."""
    with pulsar(Path(sys.argv[1]).absolute()) as server, suppress(KeyboardInterrupt):
        print(f'[pulsar]\nservice_url = "{server.service_url}"\nadmin_url = "{server.admin_url}"', flush=True)
        server.process.wait()


if __name__ == "__main__":
    main()
