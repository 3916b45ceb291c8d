"""A headless Chromium to look at pages with, driven through its DevTools protocol."""

import asyncio
import base64
import os
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any

import aiohttp

START_TIMEOUT_S = 90.0
ANSWER_TIMEOUT_S = 120.0
FLAGS = (
    "headless",
    "disable-gpu",
    "disable-dev-shm-usage",
    "disable-quic",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "no-first-run",
    "hide-scrollbars",
    "force-color-profile=srgb",
)
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Path of an installed Chromium."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """A context with one page open at a time; `complaints` collects its errors, warnings and failed loads."""

    def __enter__(self) -> "Browser":
        program = chromium()
        assert program is not None, "Chromium is not installed: apt-get install chromium"
        self._profile = Path(mkdtemp(prefix="baton-chromium-"))
        words = [program, f"--user-data-dir={self._profile}", "--remote-debugging-port=0"]
        words += [f"--{flag}" for flag in FLAGS]
        words += ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._runner = asyncio.Runner()
        self._session: aiohttp.ClientSession | None = None
        self._calls = 0
        self.complaints: list[str] = []
        self._runner.run(self._connect())
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._runner.run(self._session.close())
        self._runner.close()
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    async def _connect(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        told = self._profile / "DevToolsActivePort"
        while not (told.exists() and "\n" in told.read_text()):
            assert time.monotonic() < deadline, "Chromium does not start"
            await asyncio.sleep(0.05)
        port = told.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        async with self._session.put(f"http://127.0.0.1:{port}/json/new") as answer:
            address = (await answer.json())["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(address, max_msg_size=0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools method."""
        return self._runner.run(self._call(method, parameters))

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        await self._socket.send_json({"id": self._calls, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == self._calls:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json(timeout=ANSWER_TIMEOUT_S)
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(" ".join(str(one.get("value", one)) for one in told["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["entry"]["text"])
        return message

    def show(self, *, width: int = 1280, height: int = 900, dark: bool = False, pixels: float = 1.0) -> None:
        """Size of the window, and what the reader prefers; nothing glides."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=pixels, mobile=False
        )
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Load a page and wait for it."""
        self._runner.run(self._open(url))

    async def _open(self, url: str) -> None:
        await self._call("Page.navigate", {"url": url})
        while (await self._next()).get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, *, timeout_s: float = 90.0) -> Any:
        """The value of an expression once it is truthy."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.ask(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)
        return value

    def screenshot(self, *, height: float | None = None) -> bytes:
        """A PNG of the whole page, or of its upper part."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        image = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(image["data"])
