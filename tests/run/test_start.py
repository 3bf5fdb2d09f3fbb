"""A job that cannot start prints at most one screen, without a stack trace, and ends with a documented exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.topics import progress_name
from tests.run.process import Ended, Rowkind, get, until
from tests.run.shop import Shop

pytestmark = pytest.mark.kafka

PAID = {
    "mode": "retract",
    "key": "payment_id",
    "sql": "SELECT p.payment_id, o.order_id, o.amount FROM orders o JOIN payments p ON o.order_id = p.order_id",
}
NOBODY = "127.0.0.1:9"
"""An address at which no process listens."""


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop without any events yet."""
    return Shop(broker.bootstrap_servers, tmp_path, f"start-{os.getpid()}-{tmp_path.name}")


def refused(
    shop: Shop, code: int, *told: str, command: str = "run", options: Sequence[str] = (), **environment: str
) -> Ended:
    """Run the shop's job.

    It must end by itself with this exit code and a message of one screen that has all these texts.
    """
    arguments = ["--port", "0", *options] if command == "run" else []
    with Rowkind(shop.folder / "output", command, str(shop.folder / "job.yaml"), *arguments, **environment) as running:
        ended = running.ended()
    assert ended.code == code, ended.error
    assert "Traceback" not in ended.error
    assert len(ended.error.splitlines()) < 25, ended.error
    for text in told:
        assert text in ended.error, ended.error
    assert not ended.output
    return ended


@pytest.mark.parametrize("command", ["check", "run"])
def test_what_is_no_yaml_is_refused_with_its_line(shop: Shop, command: str) -> None:
    """An unclosed bracket is reported with the line at which the parser gave up."""
    shop.job({"paid": PAID}).write_text("job: shop\nkafka: {bootstrap.servers: x\ntables: 1\n")
    refused(shop, 2, "job.yaml:3", "not valid YAML", command=command)


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_field_that_does_not_exist_is_refused_with_its_line_and_the_likely_name(shop: Shop, command: str) -> None:
    """A misspelled field is named with its place and the likely intended name."""
    job = shop.job({"paid": PAID | {"mod": "upsert"}})
    line = next(number for number, text in enumerate(job.read_text().splitlines(), 1) if '"mod"' in text)
    refused(shop, 2, f"job.yaml:{line}: sinks.paid.mod", "mode", command=command)


@pytest.mark.parametrize("command", ["check", "explain", "run"])
def test_a_column_that_no_table_has_is_refused_with_its_place_in_the_sql(shop: Shop, command: str) -> None:
    """The message points at the column in the query and lists the available columns."""
    shop.job({"paid": PAID | {"sql": PAID["sql"].replace("o.amount", "o.amout")}})
    ended = refused(shop, 2, "paid", "o.amout", "^^^", "amount", command=command)
    assert "order_id" in ended.error


def test_a_job_without_a_file_is_refused(shop: Shop) -> None:
    """The message names the path of the missing file."""
    refused(shop, 2, str(shop.folder / "job.yaml"), "No such file")


def test_a_broker_that_does_not_answer_is_told_with_its_address(shop: Shop) -> None:
    """The job ends after a few seconds and says what to check, without messages of librdkafka."""
    shop.job({"paid": PAID}, kafka={"bootstrap.servers": NOBODY})
    ended = refused(shop, 3, NOBODY, "bootstrap.servers is right")
    assert "%3|" not in ended.error


def test_kafka_settings_that_librdkafka_does_not_know_are_refused(shop: Shop) -> None:
    """The setting's name is in the message."""
    shop.job({"paid": PAID}, kafka={"bootstrap.servers": shop.servers, "acsk": "all"})
    refused(shop, 2, "acsk")


@pytest.mark.parametrize("declared", [True, False], ids=["for the sink", "for the tables"])
def test_a_registry_that_does_not_answer_is_told_with_its_address(shop: Shop, declared: bool) -> None:
    """The message is the same whether the registry is needed for the sink's schema or for the tables' columns."""
    tables = {name: shop.table(name) for name in ("orders", "payments")}
    if not declared:
        for table in tables.values():
            del table["columns"]
    shop.job({"paid": PAID}, registry={"url": f"http://{NOBODY}"}, tables=tables)
    refused(shop, 3, NOBODY, "registry.url")


def test_with_json_logs_a_refusal_is_json_too(shop: Shop) -> None:
    """Every line on standard error is an object, and the last one has the message and the exit code."""
    shop.job(
        {"paid": PAID}, tables={"orders": shop.table("orders", topic="nowhere")} | {"payments": shop.table("payments")}
    )
    ended = refused(shop, 2, options=["--log", "json"])
    *_, last = (json.loads(line) for line in ended.error.splitlines())
    assert (last["level"], last["exit_code"]) == ("ERROR", 2)
    assert "No such topic: nowhere" in last["message"]


def test_a_source_topic_that_is_not_there_is_told_by_name(shop: Shop) -> None:
    """The message says how topics are created, and no topic of the refused job is."""
    shop.job(
        {"paid": PAID}, tables={"orders": shop.table("orders", topic="nowhere"), "payments": shop.table("payments")}
    )
    refused(shop, 2, "nowhere", shop.servers, "rowkind topics create")
    present = AdminClient({"bootstrap.servers": shop.servers}).list_topics(timeout=30).topics
    assert shop.topic("payments") in present
    assert not [name for name in (shop.topic("paid"), progress_name(shop.name, "main")) if name in present]


def test_a_sink_that_may_not_be_made_and_is_not_there_is_told_by_name(shop: Shop) -> None:
    """With `create: false` the result topic must exist, and the message says how to create it."""
    shop.job({"paid": PAID | {"create": False}})
    refused(shop, 2, shop.topic("paid"), "rowkind topics create")


def test_a_port_that_is_taken_is_told_before_anything_starts(shop: Shop) -> None:
    """The port may belong to another run of the same job, which must not be disturbed."""
    shop.job({"paid": PAID})
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with Rowkind(shop.folder / "output", "run", str(shop.folder / "job.yaml"), "--port", str(port)) as running:
            ended = running.ended()
    assert ended.code == 1
    assert f"port {port}" in ended.error
    assert "--port" in ended.error
    assert len(ended.error.splitlines()) == 1


def test_java_that_is_missing_is_told_in_words(shop: Shop) -> None:
    """Java may be missing from the path, or JAVA_HOME may point to a folder without Java."""
    shop.job({"paid": PAID})
    with _path_without_java(shop.folder / "bin") as path:
        refused(shop, 1, "Java", "install", PATH=path, JAVA_HOME="")
    refused(shop, 1, "JAVA_HOME is /nowhere", JAVA_HOME="/nowhere")


def test_java_that_does_not_run_spark_is_told_with_its_path(shop: Shop) -> None:
    """The message for a Java that fails at once, as an outdated one does, names its path and the required version."""
    home = shop.folder / "jre"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'UnsupportedClassVersionError' >&2\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    shop.job({"paid": PAID})
    refused(shop, 1, str(home / "bin" / "java"), "Java 17 or newer", JAVA_HOME=str(home))


@pytest.mark.parametrize(
    ("master", "told"), [(f"spark://{NOBODY}", NOBODY), ("nonsense", "nonsense")], ids=["nobody there", "no address"]
)
def test_a_master_that_is_not_there_is_told_with_its_address(shop: Shop, master: str, told: str) -> None:
    """A short message appears, without waiting for the minute in which Spark keeps trying."""
    shop.job({"paid": PAID})
    ended = refused(shop, 1, told, options=["--master", master])
    assert len(ended.error.splitlines()) < 8, ended.error


def test_a_file_system_whose_jars_are_not_there_is_told(shop: Shop) -> None:
    """The message says where the missing jars belong."""
    shop.job({"paid": PAID}, checkpoint="abfs://bucket@account/folder")
    ended = refused(shop, 2, "abfs://bucket@account/folder", "to pyspark's folder `jars`")
    assert len(ended.error.splitlines()) < 8, ended.error


def test_a_store_that_is_not_there_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short message appears, without waiting for the many minutes in which Hadoop keeps trying."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{NOBODY}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    shop.job({"paid": PAID}, checkpoint="s3a://bucket/folder")
    ended = refused(shop, 1, "s3a://bucket/folder", NOBODY)
    assert len(ended.error.splitlines()) < 8, ended.error


def test_a_store_that_hangs_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log and /readyz report the wait, and the job still ends on SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://{}:{}".format(*silent.getsockname()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "none")
        job = shop.job({"paid": PAID}, checkpoint="s3a://bucket/folder")
        with Rowkind(shop.folder / "output", "run", str(job), "--port", "0") as running:
            word = "waiting for the checkpoint s3a://bucket/folder"
            until(lambda: word in running.error, "a word", lambda: running.error)
            code, said = get(running.port, "/readyz")
            assert (code, word in said) == (503, True), said
            began = time.monotonic()
            running.terminate()
            ended = running.ended()
            assert time.monotonic() - began < 5.5, ended.error
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error, ended.error


def test_every_exit_code_is_in_the_help(tmp_path: Path) -> None:
    """The help lists every exit code that these tests expect."""
    with Rowkind(tmp_path, "--help") as running:
        ended = running.ended()
    assert re.findall(r"^ +(\d)  ", ended.output, re.MULTILINE) == ["0", "1", "2", "3", "4"]


@contextmanager
def _path_without_java(folder: Path) -> Iterator[str]:
    """Yield a search path with all programs of this machine's path except Java."""
    folder.mkdir()
    for each in os.environ["PATH"].split(os.pathsep):
        for program in Path(each).glob("*") if Path(each).is_dir() else ():
            if program.name != "java" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    yield str(folder)
