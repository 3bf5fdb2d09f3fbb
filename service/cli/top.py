"""`rowkind top`: a running job on a terminal, by what its port says."""

from __future__ import annotations

import base64
import json
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from rowkind.errors import REFUSED, UNREACHABLE, RowkindError
from rowkind.service.cli.job_file import calls, fail

if TYPE_CHECKING:
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
    """Show what a running job does, at the URL of its status page, until Ctrl-C; of a service, what all of its jobs do.

    Where the output is no terminal, once. A certificate that the system does not know is trusted if SSL_CERT_FILE
    names its authority.
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
                # Whoever watches wants to see it come back.
                view.update(Group(shown, Text(f"\n{error}; above is the last that it said", "red")), refresh=True)


class NoStatusError(RowkindError):
    """There is no job at this address, or it does not want to talk to us. Look at the address and the login."""

    exit_code = UNREACHABLE


class NoSuchJobError(RowkindError):
    """The service has no job of this name. Take one of those that it has."""

    exit_code = REFUSED


def _drawn(url: str) -> RenderableType:
    """What a job or a service says now, for a terminal. Raises NoStatusError and NoSuchJobError."""
    from rowkind.service.cli.screen import screen, screen_of_all  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.web.overview import Overview  # noqa: PLC0415 -- as above

    said = _asked(url)
    return screen_of_all(said, _shown(url).rstrip("/")) if isinstance(said, Overview) else screen(said)


def _asked(url: str) -> JobStatus | Overview:
    """The same as data."""
    from rowkind.service.monitoring.status import JobStatus  # noqa: PLC0415 -- as above
    from rowkind.service.web.overview import Overview  # noqa: PLC0415 -- loaded when it is needed

    try:
        with urllib.request.urlopen(_request(url), timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - only HTTP, see _request
            text = answer.read()
        return Overview.from_json(text) if "jobs" in json.loads(text) else JobStatus.from_json(text)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(url, error) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise NoStatusError(
            f"nothing answers at {_shown(url)} ({reason}): is the job running, and its port right?"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise NoStatusError(f"what answers at {_shown(url)} is no status page of Rowkind of this version") from None


def _refusal(url: str, error: urllib.error.HTTPError) -> RowkindError:
    """What an answer that is none means."""
    from rowkind.service.web.overview import Overview  # noqa: PLC0415 -- loaded when it is needed

    shown = _shown(url)
    service, of_service, job = url.rstrip("/").rpartition("/jobs/")
    match error.code:
        case 401:
            return NoStatusError(f"{shown} wants a login, https://user:password@…")
        case 503 if of_service and error.headers.get_content_type() == "text/plain":
            return NoStatusError(f"job {job} does not run: {error.read().decode(errors='replace').strip()}")
        case 404 if of_service:
            # Raises NoStatusError where nothing of ours is.
            said = _asked(service)
            if isinstance(said, Overview):
                names = ", ".join(each.name for each in said.jobs)
                return NoSuchJobError(f"there is no job {job} at {_shown(service)}; there are {names}")
            return NoSuchJobError(f"at {_shown(service)} runs one job alone, {said.job}: rowkind top {_shown(service)}")
        case _:
            return NoStatusError(f"{shown} answers with {error.code}: no status page of Rowkind is there")


def _request(url: str) -> urllib.request.Request:
    """The request of the status, with the login that the URL has. Ends the command if it is no URL of the web."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fail(f"{url} is no address of a status page: say http://HOST:PORT or https://HOST:PORT", REFUSED)
    request = urllib.request.Request(f"{_shown(url).rstrip('/')}/status.json")  # noqa: S310 - as said above
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    return request


def _shown(url: str) -> str:
    """The URL without its login."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
