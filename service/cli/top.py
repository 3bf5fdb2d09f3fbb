"""`rowkind top`: a running job on a terminal, by what its port says."""

from __future__ import annotations

import base64
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
    from rowkind.service.run.status import JobStatus

_PATIENCE_SECONDS = 10.0


@click.command(
    epilog=calls(
        "rowkind top",
        "rowkind top http://shop.example:8080 --every 5",
        "rowkind top https://ops:password@shop.example:8443",
        "rowkind top | cat",
    )
)
@click.argument("url", default="http://127.0.0.1:8080")
@click.option("--every", metavar="SECONDS", default=2.0, show_default=True, type=click.FloatRange(0.2, 3600))
def top(url: str, every: float) -> None:
    """Show what a running job does, at the URL of its status page, until Ctrl-C.

    Where the output is no terminal, once. A certificate that the system does not know is trusted if SSL_CERT_FILE
    names its authority.
    """
    from rich.console import Console, Group  # noqa: PLC0415 -- loaded when it is needed
    from rich.live import Live  # noqa: PLC0415 -- as above
    from rich.text import Text  # noqa: PLC0415 -- as above

    from rowkind.service.cli.screen import screen  # noqa: PLC0415 -- as above

    console = Console()
    status = _asked(url)
    if not sys.stdout.isatty():
        console.print(screen(status))
        return
    with Live(screen(status), console=console, screen=True, auto_refresh=False) as view, suppress(KeyboardInterrupt):
        while True:
            time.sleep(every)
            try:
                status = _asked(url)
                view.update(screen(status), refresh=True)
            except NoStatusError as error:
                # Whoever watches wants to see it come back.
                view.update(
                    Group(screen(status), Text(f"\n{error}; above is the last that it said", "red")), refresh=True
                )


class NoStatusError(RowkindError):
    """There is no job at this address, or it does not want to talk to us. Look at the address and the login."""

    exit_code = UNREACHABLE


def _asked(url: str) -> JobStatus:
    """What the job says now. Raises NoStatusError."""
    from rowkind.service.run.status import JobStatus  # noqa: PLC0415 -- loaded when it is needed

    try:
        with urllib.request.urlopen(_request(url), timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - only HTTP, see _request
            return JobStatus.from_json(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            why = "wants a login, https://user:password@…" if error.code == 401 else f"answers with {error.code}"
        raise NoStatusError(f"{_shown(url)} {why}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise NoStatusError(
            f"nothing answers at {_shown(url)} ({reason}): is the job running, and its port right?"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise NoStatusError(f"what answers at {_shown(url)} is no job of this version of Rowkind") from None


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
