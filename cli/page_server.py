"""Serves the page of a story over HTTP on loopback from a thread of its own, and frames as they come."""

import asyncio
from collections.abc import Callable, Sequence
from threading import Event, Thread
from types import TracebackType

import orjson
from aiohttp import web

from cluster.errors import ConfigError
from metrics.story import Frame

HOST = "127.0.0.1"
POLL_S = 0.2
STOP_TIMEOUT_S = 5.0


class PageServer:
    """A context in which `url` answers with a page, and with the frames of a run that goes on, for those who follow it.

    port: 0 for any that is free. Raises ConfigError when it is taken, or no port.
    """

    def __init__(self, page: Callable[[], bytes], frames: Sequence[Frame] = (), *, port: int = 0) -> None:
        self._page = page
        self._frames = frames
        self._port = port
        self._over = False
        self._started = Event()
        self._error: OSError | OverflowError | None = None
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name="page", daemon=True)
        self.url = ""

    def __enter__(self) -> "PageServer":
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            reason = self._error.strerror if isinstance(self._error, OSError) else self._error
            raise ConfigError(f"the page cannot be served at {HOST}:{self._port} ({reason}); choose another port, or 0")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Tell those who follow that the story is over, and stop."""
        self._over = True
        self._thread.join(STOP_TIMEOUT_S + 1)

    async def _serve(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/", self._show), web.get("/events", self._follow)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_TIMEOUT_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, self._port).start()
            self.url = f"http://{HOST}:{runner.addresses[0][1]}/"
        except (OSError, OverflowError) as error:
            self._error = error
        self._started.set()
        while self._error is None and not self._over:
            await asyncio.sleep(POLL_S)
        await runner.cleanup()

    async def _show(self, _: web.Request) -> web.Response:
        return web.Response(body=self._page(), content_type="text/html", charset="utf-8")

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: frames from the one asked for on; a browser that reconnects says where it was."""
        asked = request.headers.get("Last-Event-ID", request.query.get("after", "0"))
        sent = int(asked) if asked.isdecimal() else 0
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        while request.transport is not None:
            over = self._over
            while sent < len(self._frames):
                frame = orjson.dumps(self._frames[sent].plain())
                sent += 1
                await response.write(b"id: %d\ndata: %b\n\n" % (sent, frame))
            if over:
                await response.write(b"event: end\ndata:\n\n")
                break
            await asyncio.sleep(POLL_S)
        return response
