"""The HTTP server of `rowkind play`: a page on which the user edits a job and its changes, and sees the result.

The page sends the job and the changes with each edit, and gets their result (`service.web.play.tried`). Only this
machine can reach the server. It refuses requests that a page on another site makes the browser send.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from rowkind.errors import FAILED, RowkindError
from rowkind.service.job.load import text_of
from rowkind.service.machine.http_server import HttpServer
from rowkind.service.plan.explain.html import ICON, style
from rowkind.service.web.http import Response, ResponseHandler
from rowkind.service.web.live_page import headers
from rowkind.service.web.play.worker import Worker

HOST = "127.0.0.1"
"""The only address of the server."""

_MOST_BYTES = 4 << 20
"""The longest request, in bytes."""

_FILES = resources.files("rowkind.service.web.play")
_SCRIPT = (_FILES / "play.js").read_text("utf-8")
_EXAMPLE = re.compile(r"^## (.+?)\n.*?```yaml\n(.*?)```\n.*?```json\n(.*?)```", re.MULTILINE | re.DOTALL)


class PortInUseError(RowkindError):
    """Another process uses the port. Choose another one."""

    exit_code = FAILED


@dataclass(frozen=True)
class Example:
    """A job with its changes, as texts, with the name that the menu of the page shows."""

    name: str
    job: str
    changes: str


def examples() -> list[Example]:
    """Return the built-in examples, one for each kind of operator."""
    return [Example(*found) for found in _EXAMPLE.findall((_FILES / "examples.md").read_text("utf-8"))]


def page(offered: Sequence[Example]) -> str:
    """Return the page. Its menu has these examples, and the first one is shown."""
    # A text must not end the script element that contains it.
    data = json.dumps([asdict(each) for each in offered]).replace("<", "\\u003c")
    css = style() + resources.files("rowkind.service.web").joinpath("status.css").read_text("utf-8")
    template = Template((_FILES / "play.html").read_text("utf-8"))
    return template.substitute(
        icon=ICON, style=css + (_FILES / "play.css").read_text("utf-8"), script=_SCRIPT, examples=data
    )


class PlayServer(HttpServer):
    """Serves the page and computes its results. Raises PortInUseError."""

    def __init__(self, offered: Sequence[Example], worker: Worker, port: int) -> None:
        handler = type("Handler", (_PlayHandler,), {"page": page(offered), "worker": worker})
        try:
            super().__init__(handler, HOST, port, "play")
        except OSError as error:
            raise PortInUseError(
                f"port {port} of {HOST} is not available: {error.strerror}. Choose another one with --port (0 for any "
                "free port)"
            ) from None


class _PlayHandler(ResponseHandler):
    page: str
    worker: Worker

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self.respond(self._page() if self._is_own() else _refusal(HTTPStatus.FORBIDDEN))

    def do_POST(self) -> None:  # noqa: N802 - http.server's name
        self.respond(self._result())

    def _page(self) -> Response:
        if self.path.partition("?")[0] != "/":
            return _refusal(HTTPStatus.NOT_FOUND)
        return Response.page(self.page, headers(_SCRIPT))

    def _result(self) -> Response:
        size = self.headers.get("Content-Length", "")
        if not self._is_own() or self.headers.get_content_type() != "application/json":
            return _refusal(HTTPStatus.FORBIDDEN)
        if self.path != "/result":
            return _refusal(HTTPStatus.NOT_FOUND)
        if not size.isascii() or not size.isdigit() or int(size) > _MOST_BYTES:
            self.close_connection = True
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        request: Any = None
        with suppress(ValueError, RecursionError):
            request = json.loads(self.rfile.read(int(size)))
        if not isinstance(request, Mapping):
            return _refusal(HTTPStatus.BAD_REQUEST)
        return Response(200, "application/json", self.worker.result(request).encode(), {"Cache-Control": "no-store"})

    def _is_own(self) -> bool:
        """Return whether the request is for this server's address, and comes from this server's page or from no page.

        Another site may have a name that leads to this machine, but then the header has that name.
        """
        own = [f"{host}:{self.server.server_address[1]}" for host in (HOST, "localhost")]  # type: ignore[index]
        origin = self.headers.get("Origin")
        return self.headers.get("Host") in own and origin in (None, *(f"http://{each}" for each in own))


def _refusal(code: HTTPStatus) -> Response:
    return Response.text(code, code.phrase)


def serve(job_file: Path | None, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C. At first it shows the job file and, if its folder has one, the file changes.jsonl.

    `ready` is called with the address. Raises PortInUseError.
    """
    own = [] if job_file is None else [_from_file(job_file)]
    with (
        suppress(KeyboardInterrupt),
        Worker(job_file or Path("job.yaml")) as worker,
        PlayServer([*own, *examples()], worker, port) as server,
    ):
        ready(f"http://{HOST}:{server.port}/")
        threading.Event().wait()


def _from_file(file: Path) -> Example:
    """Return the job of a file, with the changes in its folder. Raises JobError if the file cannot be read."""
    changes = file.parent / "changes.jsonl"
    return Example(str(file), text_of(file), changes.read_text("utf-8", errors="replace") if changes.is_file() else "")
