"""Brokers that require authentication: every client of a job, with every way to authenticate."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.client import Producer, changes
from rowkind.service.cli import main
from rowkind.service.job.load import load
from rowkind.service.run.dead_letters import replay
from tests.security.conftest import LISTENERS, PASSWORD, SecuredBroker
from tests.security.rights import grant

pytestmark = pytest.mark.kafka

CLIENT_SECRET = "planted-secret-of-the-client"


@pytest.fixture(scope="module")
def tokens() -> Iterator[str]:
    """A token endpoint that checks the client's secret; tokens are unsigned, as this broker accepts them."""

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            wanted = base64.b64encode(f"rowkind:{CLIENT_SECRET}".encode()).decode()
            good = self.headers["Authorization"] == f"Basic {wanted}"
            now = int(time.time())
            parts = {"alg": "none", "typ": "JWT"}, {"sub": "job", "iat": now, "exp": now + 3600}
            token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
            body = json.dumps(
                {"access_token": f"{token}.", "token_type": "Bearer"} if good else {"error": "no"}
            ).encode()
            self.send_response(200 if good else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()


@pytest.fixture
def make_job(secured: SecuredBroker, tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """A function that writes the file of a job with these Kafka settings, whose topics exist."""
    name = f"way-{tmp_path.name}"
    topics = {part: f"{name}.{part}" for part in ("orders", "all", "letters")}

    def make(kafka: dict[str, str]) -> Path:
        job = {
            "job": name,
            "kafka": kafka,
            "registry": {"folder": "schemas"},
            "checkpoint": "checkpoint",
            "dead_letters": {"topic": topics["letters"]},
            "tables": {"orders": {"topic": topics["orders"], "mode": "append", "columns": {"id": "BIGINT"}}},
            "sinks": {"all": {"topic": topics["all"], "mode": "append", "sql": "SELECT id FROM orders"}},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        return tmp_path / "job.yaml"

    admin = AdminClient({"bootstrap.servers": secured.servers})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in topics.values()]).values():
        made.result()
    grant(admin, load(make({"bootstrap.servers": secured.servers})), {"topic": (f"{name}.", ("READ", "WRITE"))})
    return make


@pytest.mark.parametrize("way", [*LISTENERS, "OIDC"])
def test_who_shows_who_he_is_gets_in(
    way: str, secured: SecuredBroker, tokens: str, make_job: Callable[[dict[str, str]], Path]
) -> None:
    """An authenticated job can create topics, produce, read committed records and use transactions."""
    job = make_job(_oidc(secured, tokens, CLIENT_SECRET) if way == "OIDC" else secured.client(way))
    with Producer(job, "orders") as orders:
        orders.insert({"id": 1})
    assert [change.row for change in changes(job, "orders")] == [{"id": 1}]
    assert replay(load(job), []) == []


WRONG: dict[str, dict[str, str]] = {
    "TLS": {"ssl.ca.location": "/dev/null"},
    "MTLS": {"ssl.certificate.location": "", "ssl.key.location": ""},
    "PLAIN": {"sasl.password": "planted-and-wrong"},
    "SCRAM": {"sasl.password": "planted-and-wrong"},
    "OAUTH": {"sasl.oauthbearer.config": "principal=nobody"},
}


@pytest.mark.parametrize("way", [*LISTENERS, "OIDC"])
def test_who_does_not_is_told_so_in_a_line(
    way: str, secured: SecuredBroker, tokens: str, make_job: Callable[[dict[str, str]], Path]
) -> None:
    """Failed authentication is reported in one line with exit code 2 or 3 and without secrets."""
    settings = _oidc(secured, tokens, "planted-and-wrong") if way == "OIDC" else secured.client(way) | WRONG[way]
    job = make_job({name: value for name, value in settings.items() if value})
    told = CliRunner().invoke(main, ["topics", "create", str(job)])
    assert told.exit_code in {2, 3}, told.stderr
    assert len(told.stderr.splitlines()) == 1, told.stderr
    assert "planted" not in told.output + told.stderr
    assert PASSWORD not in told.stderr


def _oidc(secured: SecuredBroker, tokens: str, secret: str) -> dict[str, Any]:
    settings = secured.client("OAUTH")
    del settings["enable.sasl.oauthbearer.unsecure.jwt"], settings["sasl.oauthbearer.config"]
    return settings | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "rowkind",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": tokens,
    }
