"""Several jobs in one service: they start, change and end with their files, and fail independently."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.dev.broker import Broker
from rowkind.service.web.overview import Overview
from tests.run.process import Rowkind, get, until
from tests.run.results import Results
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

GOOD = "SELECT rating_id, stars FROM ratings WHERE stars > 2"
BETTER = "SELECT rating_id, stars FROM ratings WHERE stars > 4"
PIECES = "SELECT item, pieces FROM stock"


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop with ratings of 1 to 5 stars, and ten pieces of one item."""
    made = Shop(broker.bootstrap_servers, tmp_path, f"several-{os.getpid()}-{tmp_path.name}")
    for stars in range(1, 6):
        made.row("ratings", "+I", rating_id=stars, stars=stars)
    made.row("stock", "+I", item="pen", pieces=10)
    made.flush()
    return made


class Folder:
    """A folder of job files, as Kubernetes mounts a ConfigMap.

    Its files are links through `..data` into a folder with the files of one version. A new version is a new folder, and
    `..data` is switched to it in one step. After that, links for new files are added and links without a target are
    removed.
    """

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.path = shop.folder / "jobs"
        self.path.mkdir()
        self._files: dict[str, str] = {}
        self._versions = itertools.count()

    def write(self, name: str, sql: str, comment: str = "", **sink: Any) -> None:
        """Write the file of a job with this name and one sink, whose topic has the same name."""
        job = json.loads(self.shop.job({name: {"mode": "retract", "sql": sql, **sink}}).read_text())
        job |= {"job": f"{self.shop.name}-{name}", "registry": {"folder": str(self.shop.folder / "schemas")}}
        self.put(name, f"# {comment}\n{json.dumps(job)}")

    def put(self, name: str, text: str) -> None:
        """Write a file with any text."""
        self._swap(self._files | {f"{name}.yaml": text})

    def take(self, name: str) -> None:
        """Remove the file."""
        self._swap({file: text for file, text in self._files.items() if file != f"{name}.yaml"})

    def _swap(self, files: dict[str, str]) -> None:
        version = self.path / f"..{next(self._versions)}"
        version.mkdir()
        for file, text in files.items():
            (version / file).write_text(text)
        draft = self.path / "..draft"
        draft.symlink_to(version.name)
        draft.replace(self.path / "..data")
        for file in files.keys() - self._files.keys():
            (self.path / file).symlink_to(Path("..data", file))
        for file in self._files.keys() - files.keys():
            (self.path / file).unlink()
        self._files = files


def test_jobs_come_change_fail_and_go_alone(shop: Shop) -> None:
    """What happens to one job of a service is reported, and does not affect another job."""
    jobs = Folder(shop)
    jobs.write("good", GOOD)
    jobs.put("broken", "job: broken")
    good, pieces = Results(shop, "good"), Results(shop, "pieces")
    arguments = ("run", str(jobs.path), "--port", "0", "--on-change", "upgrade")
    with Rowkind(shop.folder / "output", *arguments) as service:
        _holds(service, good, {(3, 3), (4, 4), (5, 5)})
        _tells_of_a_refused_file(service)
        # The refused file is replaced by a valid job with other topics. Both jobs have their own pages and metrics.
        jobs.take("broken")
        jobs.write("pieces", PIECES, key="item")
        _holds(service, pieces, {("pen", 10)})
        until(lambda: get(service.port, "/readyz")[0] == 200, "two jobs that are ready", lambda: service.error)
        for name in ("good", "pieces"):
            assert get(service.port, f"/jobs/{shop.name}-{name}/")[0] == 200
            assert f'rowkind_up{{name="{shop.name}-{name}",query="main"}} 1.0' in get(service.port, "/metrics")[1]
            assert f"{shop.name}-{name}" in get(service.port, "/")[1]
        # A killed job is restarted; the other job is not affected.
        processes = mains(service)
        os.kill(processes[f"{shop.name}-pieces"], signal.SIGKILL)
        shop.row("stock", "+U", item="pen", pieces=9)
        shop.flush()
        _holds(service, pieces, {("pen", 9)})
        assert mains(service)[f"{shop.name}-good"] == processes[f"{shop.name}-good"]
        _keeps_to_the_old_text(shop, service, jobs, good)
        processes = mains(service)
        # A job whose query has changed is cut over.
        jobs.write("good", BETTER)
        _holds(service, good, {(5, 5)})
        assert mains(service)[f"{shop.name}-good"] != processes[f"{shop.name}-good"]
        # Removing a file ends its job.
        jobs.take("pieces")
        until(lambda: f"{shop.name}-pieces" not in get(service.port, "/")[1], "one job", lambda: service.error)
        service.terminate()
        ended = service.ended()
        assert ended.code == 0, ended.error
        assert "Traceback" not in ended.error
        # Writers and the processes that fork them end after the last process that could use them.
        until(lambda: service.members() == [], "the end of all processes", lambda: service.error)
    assert not good.flaws
    assert not pieces.flaws


def _holds(service: Rowkind, results: Results, rows: set[tuple[Any, ...]]) -> None:
    until(lambda: set(results.rows()) == rows, f"{rows} in {results.topic}", lambda: service.error)


def _tells_of_a_refused_file(service: Rowkind) -> None:
    """A refused file is reported with the reason, and the other job runs."""
    until(lambda: get(service.port, "/readyz")[0] == 503, "a job that is missing", lambda: service.error)
    assert "broken.yaml" in get(service.port, "/readyz")[1]
    assert get(service.port, "/healthz")[0] == 200
    assert 'rowkind_job_up{name="broken"} 0.0' in get(service.port, "/metrics")[1]


def _keeps_to_the_old_text(shop: Shop, service: Rowkind, jobs: Folder, good: Results) -> None:
    """A file that changes only in formatting or that is refused leaves the job running; the refusal is reported."""
    process = mains(service)[f"{shop.name}-good"]
    jobs.write("good", GOOD, comment="as before")
    jobs.write("good", "SELECT no_such_column FROM ratings")
    until(lambda: "no_such_column" in get(service.port, "/")[1], "what is wrong", lambda: service.error)
    assert mains(service)[f"{shop.name}-good"] == process
    # The refused file does not keep the job from being restarted as it was.
    os.kill(process, signal.SIGKILL)
    shop.row("ratings", "+I", rating_id=6, stars=3)
    shop.flush()
    _holds(service, good, {(3, 3), (4, 4), (5, 5), (6, 3)})
    assert "no_such_column" in get(service.port, "/")[1]


def mains(service: Rowkind) -> dict[str, int]:
    """Return the main process of each job, by the job's name."""
    found = {}
    for pid in service.members():
        words = Path("/proc", str(pid), "cmdline").read_text().split("\0")
        if words[1:4] == ["-m", "rowkind", "run"] and words[4].endswith(".yaml"):
            found[words[4]] = pid
    return {json.loads(Path(file).read_text().partition("\n")[2])["job"]: pid for file, pid in found.items()}


def test_a_folder_without_any_job_is_refused(tmp_path: Path) -> None:
    """A folder without job files ends the service with exit code 2, and the message says that a job file is missing."""
    (tmp_path / "jobs").mkdir()
    with Rowkind(tmp_path / "output", "run", str(tmp_path / "jobs"), "--port", "0") as service:
        ended = service.ended()
    assert ended.code == 2
    assert "no job file" in ended.error


def test_a_job_that_keeps_ending_says_why_while_it_is_started_again(tmp_path: Path) -> None:
    """Its own page, the overview, the JSON status and both probes give the reason; so they do for a refused file."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    tables = {"orders": {"format": "json", "mode": "append", "columns": {"id": "BIGINT"}}}
    sinks = {"out": {"format": "json", "mode": "append", "sql": "SELECT id FROM orders"}}
    job = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "checkpoint": str(tmp_path), "tables": tables, "sinks": sinks}
    (jobs / "first.yaml").write_text(json.dumps({"job": "first", **job}))
    (jobs / "broken.yaml").write_text("job: broken")
    with Rowkind(tmp_path / "output", "run", str(jobs), "--port", "0") as service:

        def says(path: str, what: str) -> None:
            until(lambda: what in get(service.port, path)[1], f"{what} at {path}", lambda: service.error)

        says("/jobs/first/", "It is restarted in")
        says("/jobs/first/", "no answer from Kafka at 127.0.0.1:1")
        says("/readyz", "job first: restarting for the 2nd time; it last ended because: While connecting")
        for path in ("/", "/healthz", "/status.json"):
            says(path, "it last ended because: While connecting")
        assert "<h2>Recent errors</h2>" in get(service.port, "/jobs/first/")[1]
        assert "<h2>Refused</h2>" in get(service.port, "/jobs/broken/")[1]
        overview = Overview.from_json(get(service.port, "/status.json")[1])
    assert [(each.name, each.state, each.restarts) for each in overview.jobs] == [
        ("first", "starting", 2),
        ("broken", "refused", 0),
    ]
