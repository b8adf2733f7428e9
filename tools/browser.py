"""A headless Chromium that opens one page of textual-serve: what its terminal shows, and a picture of it.

Debian has it as chromium-headless-shell. It is driven by the DevTools protocol over a WebSocket.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp

__all__ = ["NAMES", "Page", "find", "page"]

NAMES: Final = ("chromium-headless-shell", "chromium", "google-chrome")

_CATCH_TERMINAL: Final = """
Object.defineProperty(Object.prototype, "terminal", {
  configurable: true,
  set(value) {
    window.shown = value;
    Object.defineProperty(this, "terminal", {value, writable: true, configurable: true});
  },
});
"""
"""textual-serve draws on a canvas, which has no text; this gets hold of the terminal that it draws."""

_READ_TERMINAL: Final = """
(() => {
  const lines = [];
  if (window.shown && document.body.classList.contains("-first-byte"))
    for (let row = 0; row < shown.rows; row++)
      lines.push(shown.buffer.active.getLine(row).translateToString());
  return lines.join("\\n");
})()
"""


def find() -> str | None:
    """The browser's program; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page that is open."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._last = 0
        self.requests: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol. Addresses that the page asks for meanwhile go to ``requests``."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        while True:
            answer = await self._socket.receive_json()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.call("Network.enable")
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=_CATCH_TERMINAL)
        await self.call("Page.navigate", url=url)

    async def text(self) -> str:
        """What the terminal shows; empty until it shows something."""
        answer = await self.call("Runtime.evaluate", expression=_READ_TERMINAL, returnByValue=True)
        return str(answer["result"].get("value", ""))

    async def press(self, text: str) -> None:
        """Type into the terminal."""
        for letter in text:
            enter = {"key": "Enter", "windowsVirtualKeyCode": 13} if letter == "\r" else {"key": letter}
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, **enter)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **enter)

    async def wait_for(self, *wanted: str, seconds: float = 20.0) -> str:
        """Wait until the terminal shows all of these; what it shows then."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            shown = await self.text()
            if all(each in shown for each in wanted):
                return shown
            if asyncio.get_running_loop().time() > end:
                lines = "\n".join(line.rstrip() for line in shown.splitlines() if line.strip())
                raise TimeoutError(f"the page does not show {wanted}, but:\n{lines}")
            await asyncio.sleep(0.1)

    async def picture(self) -> bytes:
        """What is seen, as a PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def page(program: str, *, width: int = 1000, height: int = 600) -> AsyncIterator[Page]:
    """An empty page of a browser that is started for it."""
    with tempfile.TemporaryDirectory(prefix="kadence-browser-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Debian's is a script that starts the browser; a signal has to reach both.
            start_new_session=True,
        )
        try:
            address = await asyncio.wait_for(_address(process), 60)
            async with (
                aiohttp.ClientSession() as client,
                client.ws_connect(address, max_msg_size=0) as socket,
            ):
                whole = Page(socket, "")
                target = await whole.call("Target.createTarget", url="about:blank")
                attached = await whole.call(
                    "Target.attachToTarget", targetId=target["targetId"], flatten=True
                )
                yield Page(socket, attached["sessionId"])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # Its last words are read, so that the pipe is closed.
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where it listens for the DevTools protocol: it says so on stderr."""
    assert process.stderr is not None
    said = []
    while line := (await process.stderr.readline()).decode(errors="replace"):
        said.append(line)
        if line.startswith("DevTools listening on "):
            return line.removeprefix("DevTools listening on ").strip()
    raise RuntimeError("the browser did not start: " + "".join(said[-5:]))
