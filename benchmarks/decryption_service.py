"""A decryption service to measure by, in a process of its own: `python -m benchmarks.decryption_service SECONDS AT_ONCE`.

It works at AT_ONCE records at once, SECONDS each, and answers what it was sent. Its port is its first line of output.
"""

from __future__ import annotations

import asyncio
import sys


async def serve(seconds: float, at_once: int) -> None:
    workers = asyncio.Semaphore(at_once)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                async with workers:
                    await asyncio.sleep(seconds)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
