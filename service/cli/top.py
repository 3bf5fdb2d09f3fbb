"""`rowkind top`: show a running job on a terminal. The status comes from the job's HTTP port."""

from __future__ import annotations

import base64
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from rowkind.errors import REFUSED, UNREACHABLE, RowkindError
from rowkind.service.cli.job_file import calls, fail

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import Request

    from rich.console import RenderableType

    from rowkind.service.monitoring.status import JobStatus
    from rowkind.service.web.overview import Overview

_PATIENCE_SECONDS = 10.0


@click.command(
    epilog=calls(
        "rowkind top",
        "rowkind top http://shop.example:8080 --every 5",
        "rowkind top http://shop.example:8080/jobs/stock",
        "rowkind top https://ops:password@shop.example:8443",
        "rowkind top | cat",
    )
)
@click.argument("url", default="http://127.0.0.1:8080")
@click.option("--every", metavar="SECONDS", default=2.0, show_default=True, type=click.FloatRange(0.2, 3600))
def top(url: str, every: float) -> None:
    """Show the status of a running job until Ctrl-C.

    URL is the address of its status page. For a multi-job service, the status of all jobs is shown.

    If the output is not a terminal, the status is printed once. If the server's certificate is not trusted by the
    system, set SSL_CERT_FILE to the file of its certificate authority.
    """
    from rich.console import Console, Group  # noqa: PLC0415 -- loaded when it is needed
    from rich.live import Live  # noqa: PLC0415 -- as above
    from rich.text import Text  # noqa: PLC0415 -- as above

    console = Console()
    shown = _drawn(url)
    if not sys.stdout.isatty():
        console.print(shown)
        return
    with Live(shown, console=console, screen=True, auto_refresh=False) as view, suppress(KeyboardInterrupt):
        while True:
            time.sleep(every)
            try:
                shown = _drawn(url)
                view.update(shown, refresh=True)
            except (NoStatusError, NoSuchJobError) as error:
                # Keep polling, so that the view recovers when the job is back.
                view.update(Group(shown, Text(f"\n{error}; the last known status is shown above", "red")), refresh=True)


class NoStatusError(RowkindError):
    """There is no job at this address, or it refuses the request. Check the address and the login."""

    exit_code = UNREACHABLE


class NoSuchJobError(RowkindError):
    """The service has no job of this name. Use one of the names in the message."""

    exit_code = REFUSED


def _drawn(url: str) -> RenderableType:
    """Fetch the status of a job or a service and render it. Raises NoStatusError or NoSuchJobError."""
    from rowkind.service.cli.screen import screen, screen_of_all  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.web.overview import Overview  # noqa: PLC0415 -- as above

    said = _asked(url)
    return screen_of_all(said, _shown(url).rstrip("/")) if isinstance(said, Overview) else screen(said)


def _asked(url: str) -> JobStatus | Overview:
    """Fetch the status of a job or a service. Raises NoStatusError or NoSuchJobError."""
    from http.client import HTTPException  # noqa: PLC0415 -- it loads TLS, which no other command needs at its start
    from urllib.error import HTTPError  # noqa: PLC0415 -- as above
    from urllib.request import urlopen  # noqa: PLC0415 -- as above

    from rowkind.service.monitoring.status import JobStatus  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.web.overview import Overview  # noqa: PLC0415 -- as above

    try:
        with urlopen(_request(url), timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - only HTTP, see _request
            text = answer.read()
        return Overview.from_json(text) if "jobs" in json.loads(text) else JobStatus.from_json(text)
    except HTTPError as error:
        with error:
            raise _refusal(url, error) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise NoStatusError(
            f"no response from {_shown(url)} ({reason}): check that the job is running and that the port is right"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise NoStatusError(
            f"the response from {_shown(url)} is not a status page of this version of Rowkind: check the address"
        ) from None


def _refusal(url: str, error: HTTPError) -> RowkindError:
    """Return the error for an HTTP error response."""
    from rowkind.service.web.overview import Overview  # noqa: PLC0415 -- loaded when it is needed

    shown = _shown(url)
    service, of_service, job = url.rstrip("/").rpartition("/jobs/")
    match error.code:
        case 401:
            return NoStatusError(f"{shown} requires a login: use https://user:password@…")
        case 503 if of_service and error.headers.get_content_type() == "text/plain":
            return NoStatusError(f"job {job} is not running: {error.read().decode(errors='replace').strip()}")
        case 404 if of_service:
            # Raises NoStatusError if this is not a Rowkind service.
            said = _asked(service)
            if isinstance(said, Overview):
                names = ", ".join(each.name for each in said.jobs)
                return NoSuchJobError(f"there is no job {job} at {_shown(service)}; the jobs are {names}")
            return NoSuchJobError(f"{_shown(service)} runs only one job, {said.job}: use rowkind top {_shown(service)}")
        case _:
            return NoStatusError(
                f"{shown} responds with status {error.code} and is not a Rowkind status page: check the address"
            )


def _request(url: str) -> Request:
    """Return the request for the status, with the URL's login. Exits with an error if it is not an HTTP URL."""
    from urllib.request import Request  # noqa: PLC0415 -- as in _asked

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fail(f"{url} is not the address of a status page: use http://HOST:PORT or https://HOST:PORT", REFUSED)
    request = Request(f"{_shown(url).rstrip('/')}/status.json")  # noqa: S310 - see above
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    return request


def _shown(url: str) -> str:
    """Return the URL without its login."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
