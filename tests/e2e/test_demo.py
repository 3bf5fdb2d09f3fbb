"""`uvx --from WHEEL rowkind demo` where nothing but Python 3.11, Java 17 and uv is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from rowkind.service.dev.jars import KAFKA, kafka_jars
from tests.deploy.building import build_from_copy
from tests.e2e.containers import BASE_IMAGE, require_daemon
from tests.terminal import Terminal

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

IMAGE = "rowkind-test/java"
DOCKERFILE = f"""
FROM {BASE_IMAGE}
RUN mkdir -p /usr/share/man/man1 \\
    && apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless && rm -rf /tmp/*
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt XDG_CACHE_HOME=/cache
"""
UV_CACHE = "rowkind-test-uv:/cache/uv"
"""A volume that stays, as the images do: what uv has downloaded."""

LEFT = r"""
trap : INT
touch /began
"$@"
echo "exit code $?"
find / -xdev -newer /began ! -type d ! -path "/proc/*" ! -path "/sys/*" ! -path "*/share/uv/*" -exec echo "left" {} \;
find /tmp -mindepth 1 -exec echo "left" {} \;
for process in /proc/[0-9]*; do
    [ "$process" = /proc/1 ] || [ -z "$(tr -d '\0' < $process/cmdline)" ] || echo "left $process"
done
"""
"""Runs a command, and says how it ended, and which files and processes it has left, without those of uv."""


def test_the_demo_runs_in_a_bare_container_and_leaves_nothing(tmp_path: Path) -> None:
    """Live results and a page until Ctrl-C; then no process and no file is left but what caches hold."""
    require_daemon()
    docker("build", "--quiet", "--tag", IMAGE, "-", text=DOCKERFILE)
    build_from_copy(tmp_path / "source", tmp_path / "built")
    (wheel,) = (tmp_path / "built").glob("*.whl")
    mounted = [UV_CACHE, f"{wheel}:/{wheel.name}:ro", f"{kafka_jars()}:/cache/rowkind/kafka-{KAFKA}:ro"]
    mounted += [f"{Path(sys.executable).parent / name}:/usr/local/bin/{name}:ro" for name in ("uv", "uvx")]
    volumes = [f"--volume={each}" for each in mounted]
    docker("run", "--rm", *volumes, IMAGE, "uvx", "--from", f"/{wheel.name}", "rowkind", "--version")
    name = f"rowkind-test-{uuid4().hex}"
    started = ["docker", "run", "--rm", "--interactive", "--tty", f"--name={name}", *volumes, IMAGE]
    uvx = ["uvx", "--offline", "--from", f"/{wheel.name}", "rowkind", "demo"]
    with Terminal(*started, "sh", "-c", LEFT, "sh", *uvx) as demo:
        url = demo.until(r"status page is (http://\S+)")[1]
        demo.until(r"order-payments: all [\d,]+ rows equal")
        asks = f"import urllib.request as u; print(u.urlopen('{url}').read())"
        assert "orders-payments" in docker("exec", name, "python3", "-c", asks)
        demo.press_ctrl_c()
        demo.ended()
    assert "exit code 0" in demo.said
    assert "left" not in demo.said.partition("exit code 0")[2]
    assert "Traceback" not in demo.said


def docker(*arguments: str, text: str = "") -> str:
    """What Docker prints."""
    done = subprocess.run(["docker", *arguments], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
