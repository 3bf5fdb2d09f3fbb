"""Prometheus from Debian's package: its rule tester, and a server with the rules in this repository.

If it is not installed, the tests are skipped with the reason; with ROWKIND_REQUIRE_PROMETHEUS=1, as in CI, they fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.machine.ports import free_port
from tests.run.process import get, until

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml"


def require() -> None:
    """Skip or fail unless Prometheus is installed."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        reason = "Prometheus is not installed (apt-get install prometheus)"
        if os.environ.get("ROWKIND_REQUIRE_PROMETHEUS") == "1":
            pytest.fail(f"{reason}, and is required here", pytrace=False)
        pytest.skip(reason)


def hastened(rules: str) -> str:
    """Return faster rules: minutes become seconds, and thresholds become smaller."""
    faster = re.sub(r"\b(\d+)m\b", r"\1s", rules).replace("> 300", "> 5").replace("> 60", "> 3")
    return re.sub(r"> [12]$", "> 0", faster, flags=re.MULTILINE)


@dataclass(frozen=True)
class Prometheus:
    """A running server; `targets` is the file with its scrape targets, if there is one."""

    port: int
    targets: Path | None = None

    def ask(self, query: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Return the current result of a query: labels and values."""
        found = self._get("query", query=query)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def alerts(self) -> Sequence[Mapping[str, Any]]:
        """Return the alerts that are pending or firing, with their annotations."""
        found: Sequence[Mapping[str, Any]] = self._get("alerts")["data"]["alerts"]
        return found

    def rules(self) -> Sequence[str]:
        """Return the names of the alerts, in order."""
        return [rule["name"] for group in self._get("rules")["data"]["groups"] for rule in group["rules"]]

    def fired(self) -> set[str]:
        """Return the names of the alerts that have fired within the last ten minutes."""
        return {labels["alertname"] for labels, _ in self.ask('count_over_time(ALERTS{alertstate="firing"}[10m])')}

    def forget(self) -> None:
        """Remove all scrape targets, as if the pod were gone."""
        assert self.targets is not None, "it was started here"
        draft = self.targets.with_suffix(".draft")
        draft.write_text("[]")
        draft.replace(self.targets)

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run a server that scrapes `target` every second, with faster rules and with its data in `folder`."""
    port = free_port()
    (folder / "rules.yaml").write_text(hastened(RULES.read_text()))
    targets = folder / "targets.json"
    targets.write_text(json.dumps([{"targets": [target]}]))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "rowkind", "file_sd_configs": [{"files": [str(targets)]}]}],
    }
    # JSON is also YAML.
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    command = ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log, stdout=log)
        try:
            said = (folder / "prometheus.log").read_text
            until(lambda: get(port, "/-/ready")[0] == 200, "Prometheus", said)
            yield Prometheus(port, targets)
        finally:
            server.terminate()
            server.wait(30)
