"""One Elasticsearch for all tests of this process, and for the processes that they start."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.requirement import required, started
from tests.support.stores import elasticsearch

if TYPE_CHECKING:
    from sinks.elasticsearch.client import IndexLocation

URL = "TEST_ELASTICSEARCH_URL"
DATA = "TEST_ELASTICSEARCH_DATA"
"""Report a test's own processes where it is, and its files."""

MOST_INDICES = 4
"""Of tests: older ones are removed, because each costs the server."""
_made: list[IndexLocation] = []


def require_elasticsearch() -> str:
    """Where the server is, started when first asked for. Skips the test, with the reason, when it cannot be
    had, or the extra `elasticsearch` is not installed."""
    with required("elasticsearch", "idgraph[elasticsearch]"):
        return os.environ.get(URL) or _started()


def place_of_index(folder: Path) -> IndexLocation:
    """An index that belongs to a folder, made when first asked for."""
    from sinks.elasticsearch.client import IndexLocation

    name = "t" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]
    place = IndexLocation(require_elasticsearch(), name)
    made = folder / "elasticsearch-index"
    if not made.exists():
        create(place)
        made.touch()
        _made.append(place)
        if len(_made) > MOST_INDICES:
            remove(_made.pop(0))
    return place


def create(place: IndexLocation) -> None:
    """Make an index that holds what was deleted no longer than a moment."""
    from sinks.elasticsearch.client import ElasticsearchClient
    from sinks.elasticsearch.schema import IndexShape
    from sinks.elasticsearch.schema import create as create_index

    client = ElasticsearchClient(place)
    settings = {"index.soft_deletes.retention_lease.sync_interval": "500ms"}
    template = {"index_patterns": ["*"], "template": {"settings": settings}}
    client.call(lambda api: api.indices.put_index_template(name="quick", **template))
    create_index(client, IndexShape(shards=1, replicas=0))
    client.close()


def in_files(text: bytes) -> list[str]:
    """The server's files that hold a text, as it is."""
    require_elasticsearch()
    command: list[str | bytes] = ["grep", "-rlaF", "-e", text, os.environ[DATA]]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.split()


def remove(place: IndexLocation) -> None:
    """Delete all versions of an index."""
    from sinks.elasticsearch.client import ElasticsearchClient
    from sinks.elasticsearch.schema import versions

    client = ElasticsearchClient(place)
    client.call(lambda api: api.indices.delete(index=list(versions(client))))
    client.close()


@functools.cache
def _started() -> str:
    node, folder = started("elasticsearch", elasticsearch)
    os.environ |= {URL: node.url, DATA: f"{folder}/data"}
    return node.url
