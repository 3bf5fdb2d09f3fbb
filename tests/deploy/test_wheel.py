"""The installed wheel has one top-level package, so it can coexist with Apache's `avro`."""

from __future__ import annotations

import json
import re
import site
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from email import message_from_string
from pathlib import Path
from uuid import uuid4

import pytest

from tests.deploy.building import ROOT, build, build_from_copy, run
from tests.processes import having
from tests.run.process import PATIENCE
from tests.terminal import Terminal

LOCK = ROOT / "requirements.lock"
OTHERS = ("avro==1.12.1", "confluent-kafka[avro]")
"""Apache's package of this name, and the extra of Confluent's client that needs it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive and the wheel, and a second wheel from the archive in a folder `again`."""
    folder = tmp_path_factory.mktemp("built")
    build_from_copy(tmp_path_factory.mktemp("source"), folder)
    (archive,) = folder.glob("*.tar.gz")
    build(archive, folder / "again", "--wheel")
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The path of the wheel."""
    (found,) = built.glob("*.whl")
    return found


def test_whoever_builds_it_has_the_same(built: Path, wheel: Path) -> None:
    """A wheel built from the source archive at another time is the same, byte by byte."""
    assert (built / "again" / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_version_has_one_place(wheel: Path) -> None:
    """The wheel and the chart have the version that pyproject.toml names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert wheel.name.split("-")[1] == version
    chart = (ROOT / "deploy" / "helm" / "rowkind" / "Chart.yaml").read_text()
    assert re.findall(r"^(?:version|appVersion): \"?([^\"\s]+)", chart, re.MULTILINE) == [version, version]


def test_what_a_registry_shows_of_it_leads_on(wheel: Path) -> None:
    """Its links lead to existing docs, changes and issues, and it names the Python versions that CI runs."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = [each for each in files.namelist() if each.endswith(".dist-info/METADATA")]
        told = message_from_string(files.read(name).decode())
    urls = dict(each.split(", ") for each in told.get_all("Project-URL", ()))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    for url in urls.values():
        rest = url.removeprefix("https://github.com/rowkind/rowkind")
        assert rest in ("", "/issues") or (ROOT / re.sub(r"^/(?:tree|blob)/main/", "", rest)).exists(), url
    ran = re.findall(r'python: "(\d\.\d+)"', (ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    assert ran
    assert {f"Programming Language :: Python :: {each}" for each in ran} <= {*told.get_all("Classifier", ())}


def test_the_lock_file_has_all_that_the_wheel_asks_for(wheel: Path) -> None:
    """With the lock file installed, the wheel's installation adds only the wheel itself."""
    asked = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--offline", "--python", sys.executable, wheel]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    named = re.findall(r"^ ?\+ (\S+)", done.stderr + done.stdout, re.MULTILINE)
    assert [name.partition("=")[0] for name in named] == ["rowkind"], done.stderr


def test_nothing_but_rowkind_is_at_the_top_level(wheel: Path) -> None:
    """An installation adds one package and its metadata folder."""
    top = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert top == {"rowkind", wheel.name.partition("-cp311")[0] + ".dist-info"}


def test_every_example_and_the_schema_of_job_files_are_in_it(wheel: Path) -> None:
    """The files that `rowkind examples` and `rowkind schema` show are in the wheel."""
    held = set(zipfile.ZipFile(wheel).namelist())
    told = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert {f"rowkind/{name}" for name in told.stdout.split()} <= held
    assert {"rowkind/service/job/job.schema.json", "rowkind/service/testing/tests.schema.json"} <= held


def test_pytest_finds_the_plugin_for_sql_tests(wheel: Path) -> None:
    """The wheel registers the plugin under the name `rowkind`, with which `-p no:rowkind` turns it off."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = [each for each in files.namelist() if each.endswith(".dist-info/entry_points.txt")]
        told = files.read(name).decode()
    assert "[pytest11]\nrowkind = rowkind.service.testing.pytest_plugin\n" in told


def test_what_spark_takes_for_python_can_be_run(wheel: Path) -> None:
    """Installers keep the file mode that is recorded in the wheel."""
    mode = zipfile.ZipFile(wheel).getinfo("rowkind/service/spark/stand_in").external_attr >> 16
    assert mode & 0o111 == 0o111


@pytest.mark.parametrize("last", ["rowkind", "avro"])
def test_it_lives_beside_the_other_avro(wheel: Path, tmp_path: Path, last: str) -> None:
    """In either order of installation both packages work, and an example job of Rowkind runs."""
    python = environment(tmp_path / "venv")
    wheels = [[str(wheel), "--no-deps"], [*OTHERS]]
    for wanted in wheels if last == "avro" else reversed(wheels):
        run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *wanted)

    run(python, "-c", "import avro.schema, confluent_kafka.avro; avro.schema.parse('\"int\"')")
    folder = Path(run(python, "-m", "rowkind", "examples").splitlines()[0]).parents[1]
    assert folder.parts[-2:] == ("rowkind", "examples")
    assert "tables" in json.loads(run(python, "-m", "rowkind", "schema"))["properties"]
    command = ["try", folder / "shop" / "job.yaml", "--changes", folder / "shop" / "changes.jsonl", "--fold"]
    rows = run(python, "-m", "rowkind", *command, "--sink", "open_orders")
    assert [json.loads(line)["row"] for line in rows.splitlines()]


def test_the_demo_runs_from_it_until_ctrl_c_and_leaves_nothing(wheel: Path, short_folder: Path) -> None:
    """`uvx --from WHEEL rowkind demo` on a terminal: results that change, equal DuckDB's, and go on changing."""
    uvx = ["env", "-u", "PYTHONPATH", sys.executable, "-m", "uv", "tool", "run", "--python", sys.executable]
    uvx += ["--constraints", str(LOCK), "--from", str(wheel)]
    run(*uvx, "rowkind", "--version")  # downloads what is missing
    mark = f"ROWKIND_TEST={uuid4().hex}"
    with Terminal("env", f"TMPDIR={short_folder}", mark, *uvx, "rowkind", "demo") as demo:
        url = demo.until(r"status page is (http://\S+)")[1]
        first = demo.until(r"order-payments: ([\d,]+) rows from")
        demo.until(r"order-payments: all [\d,]+ rows equal[^$]*paid-orders: all [\d,]+ rows equal")
        later = len(demo.said)
        demo.until(rf"(?s).{{{later}}}.*order-payments: (?!{first[1]})[\d,]+ rows from")
        with urllib.request.urlopen(url, timeout=PATIENCE) as page:
            assert b"orders-payments" in page.read()
        demo.press_ctrl_c()
        assert demo.ended() == 0, demo.said
    assert "Traceback" not in demo.said
    assert not having(mark)
    assert not list(short_folder.iterdir())


def environment(folder: Path) -> Path:
    """Create an environment that sees this one's libraries but not the checkout; return its Python."""
    run(sys.executable, "-m", "uv", "venv", "--quiet", folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages() + _paths()))
    return folder / "bin" / "python"


def _paths() -> list[str]:
    """Return the library folders of this process."""
    return [path for path in sys.path if path.endswith("site-packages")]
