"""The process of `idgraph.projection.process`, with this installation's store and index."""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import closing
from multiprocessing.connection import Connection

from idgraph.app import wiring
from idgraph.projection.process import serve


def main() -> None:
    """Serve the driver at the other end of the connection whose number is the first argument."""
    # Who stops all processes of a flow at once lets the driver end this one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as connection:
        resources = wiring.open_resources(connection.recv())
        with closing(resources.store), closing(resources.index):
            gc.freeze()
            serve(connection, resources.projection)


if __name__ == "__main__":
    main()
