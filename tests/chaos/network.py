"""The network between a job and a broker: a TCP proxy that can cut, stop and slow connections."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

_PIECE_BYTES = 1 << 16


class Network:
    """A context manager that forwards connections to `port` of a host to `target` on this host, in a thread."""

    def __init__(self, port: int, target: int, host: str = "127.0.0.1") -> None:
        self._host, self._port, self._target = host, port, target
        self._delay = 0.0
        self._cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._lines: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Reset all connections, and new ones as soon as they are opened."""
        self._cut = True
        self._do(self._close)

    def stop(self) -> None:
        """Silently stop all traffic."""
        self._do(self._flows.clear)

    def slow(self, seconds: float) -> None:
        """Delay each piece of data by so many seconds."""
        self._delay = seconds

    def mend(self) -> None:
        """Restore normal traffic."""
        self._cut, self._delay = False, 0.0
        self._do(self._flows.set)

    def _do(self, what: object) -> None:
        assert callable(what)
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (what(), done.set()))
        done.wait()

    def _close(self) -> None:
        for line in self._lines:
            line.transport.abort()

    async def _listen(self) -> None:
        await asyncio.start_server(self._accept, self._host, self._port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        lines = {writer, back}
        self._lines |= lines
        try:
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        finally:
            self._lines -= lines

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flows.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()
