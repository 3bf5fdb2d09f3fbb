"""The status port: access with and without a login, over TLS."""

from __future__ import annotations

import base64
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.job_pages import JobPages

LOGIN = "ops:geheim"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A certificate authority for the tests."""
    return trustme.CA()


@pytest.fixture
def guard(authority: trustme.CA, tmp_path: Path) -> Guard:
    """A guard with a certificate and a login."""
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    for part in issued.cert_chain_pems:
        part.write_to_path(tmp_path / "certificate.pem", append=True)
    return Guard(str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem"), LOGIN)


@pytest.fixture
def server(guard: Guard) -> Iterator[StatusServer]:
    """A status port that uses TLS and requires a login."""
    monitor = Monitor("job", "1", "4", "17")
    monitor.warns({"orders": "a secret of the shop's"})
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, guard) as serving:
        yield serving


def ask(
    server: StatusServer, authority: trustme.CA, path: str, login: str | None = None, method: str = "GET"
) -> tuple[int, str]:
    """Return the status code and the text of a page."""
    request = urllib.request.Request(f"https://127.0.0.1:{server.port}{path}", method=method)
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("login", [None, "", "ops", "ops:wrong", "other:geheim", "\xe4:\xff"])
def test_who_does_not_know_the_login_sees_two_probes(
    server: StatusServer, authority: trustme.CA, login: str | None
) -> None:
    """Without a valid login only the two probes are answered, and their text shows no more than their code."""
    for path in ("/", "/metrics", "/nothing"):
        assert ask(server, authority, path, login)[0] == 401
    assert ask(server, authority, "/healthz", login) == (200, "ok\n")
    assert ask(server, authority, "/readyz", login) == (503, "not ready, or failed\n")


def test_who_knows_the_login_sees_all(server: StatusServer, authority: trustme.CA) -> None:
    """With the login, every page and the full text of the probes are answered."""
    assert "rowkind_info" in ask(server, authority, "/metrics", LOGIN)[1]
    assert "<html" in ask(server, authority, "/", LOGIN)[1]
    assert "<html" in ask(server, authority, "/explain", LOGIN)[1]
    assert '"job": "job"' in ask(server, authority, "/status.json", LOGIN)[1]
    assert ask(server, authority, "/healthz", LOGIN) == (200, "a secret of the shop's\n")
    assert ask(server, authority, "/readyz", LOGIN) == (503, "not ready yet\n")


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/nothing"])
def test_head_is_get_without_the_body(server: StatusServer, authority: trustme.CA, path: str) -> None:
    """A HEAD request is answered with the code of GET and without a body."""
    code, text = ask(server, authority, path, LOGIN, "HEAD")
    assert code == ask(server, authority, path, LOGIN)[0]
    assert not text


def test_answers_do_not_tell_what_they_are_made_with(server: StatusServer, authority: trustme.CA) -> None:
    """The Server header does not name the Python version."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with urllib.request.urlopen(f"https://127.0.0.1:{server.port}/healthz", timeout=20, context=context) as answer:
        assert answer.headers["Server"] == "Rowkind"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(server: StatusServer, authority: trustme.CA, method: str) -> None:
    """Other methods than GET and HEAD are answered with 501."""
    assert ask(server, authority, "/metrics", LOGIN, method)[0] == 501


def test_who_says_nothing_holds_up_nobody(
    server: StatusServer, authority: trustme.CA, capfd: pytest.CaptureFixture[str]
) -> None:
    """A connection that sends nothing, or no TLS, does not block other requests and logs nothing."""
    with (
        socket.create_connection(("127.0.0.1", server.port)),
        socket.create_connection(("127.0.0.1", server.port)) as other,
    ):
        other.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert ask(server, authority, "/healthz")[0] == 200
    assert not "".join(capfd.readouterr())


def test_the_login_is_not_shown(guard: Guard) -> None:
    """The repr of the guard does not show the login."""
    assert "geheim" not in repr(guard)
