"""Which notices are filtered from the user's standard error, and which are shown."""

from __future__ import annotations

import subprocess
import threading

import pytest

from rowkind.service.spark.console_filter import quiet_stderr

LOST = """Traceback (most recent call last):
  File "/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
  File "/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
TURNED_AWAY = """Traceback (most recent call last):
  File "/lib/pyspark/sql/streaming/python_streaming_source_runner.py", line 265, in main
    func_id = read_int(infile)
EOFError

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/lib/pyspark/sql/streaming/python_streaming_source_runner.py", line 300, in main
BrokenPipeError: [Errno 32] Broken pipe
"""
TOGETHER = "".join(line for pair in zip(LOST.splitlines(True), LOST.splitlines(True), strict=True) for line in pair)
BEGUN = "Traceback (most recent call last):\n"
UNANSWERED = """Exception in thread "stateConnectionListenerThread" java.io.IOException: Broken pipe
	at java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
	at java.base/java.lang.Thread.run(Thread.java:840)
"""
THREADS = """Exception in thread "main" java.io.IOException: Broken pipe
	at java.base/java.lang.Thread.run(Thread.java:840)
"""
OTHERS = """Traceback (most recent call last):
  File "/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager
MemoryError
Traceback (most recent call last):
  File "/lib/mine.py", line 1, in <module>
BrokenPipeError: [Errno 32] Broken pipe
"""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("one\nPicked up JDK_JAVA_OPTIONS: -X\ntwo\n", "one\ntwo\n"),
        (f"one\n{LOST}{LOST}two\n", "one\ntwo\n"),
        (f"{LOST}{OTHERS}", OTHERS),
        (f"one\n{TURNED_AWAY}two\n", "one\ntwo\n"),
        (f"{TURNED_AWAY}{OTHERS}", OTHERS),
        (f"one\n{TOGETHER}two\n", "one\ntwo\n"),
        (f"one\n{BEGUN}{BEGUN}", "one\n"),
        (f"one\n{BEGUN}{UNANSWERED}two\n{BEGUN}three\n", "one\ntwo\nthree\n"),
        (f"one\n{UNANSWERED}two\n{UNANSWERED}", "one\ntwo\n"),
        (f"{UNANSWERED}{THREADS}", THREADS),
        (f"{BEGUN}  cut", f"{BEGUN}  cut"),
    ],
)
def test_only_the_known_notices_are_left_out(said: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Tracebacks of cancelled workers and sources are filtered, and any other traceback is shown completely."""
    before = set(threading.enumerate())
    with quiet_stderr():
        subprocess.run(["sh", "-c", 'printf %s "$0" >&2', said], check=True)
    for relay in set(threading.enumerate()) - before:
        relay.join(10)
    assert capfd.readouterr().err == shown
