"""SIGTERM and SIGINT to a process in different states of its main thread."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import pytest

from rowkind.service.machine.signals import until_a_signal

PROGRAM = """
import sys, time
from confluent_kafka.admin import AdminClient
from rowkind.service.machine.signals import Signals
with Signals(drains={drains}) as signals:
    signals.end_within(1.0)
    client = AdminClient({{'bootstrap.servers': '127.0.0.1:{port}', 'log_level': 0}})
    try:
        print("ready", flush=True)
        {does}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        {then}
"""
TRANSLATES = """
import time
from rowkind.service.machine.signals import until_a_signal
with until_a_signal():
    try:
        print("ready", flush=True)
        time.sleep(30)
    except BaseException:
        raise TypeError("something else") from None
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("drains", "does", "then", "said"),
    [
        (False, "time.sleep(30)", "sys.exit(0)", "interrupted"),
        (False, "time.sleep(30)", "time.sleep(30)", "interrupted"),
        (True, "time.sleep(30)", "pass", ""),
        (False, "client.list_topics(timeout=30)", "pass", "interrupted"),
        (True, "while not signals.count: time.sleep(0.01)", "pass", ""),
    ],
    ids=["starting", "stuck on its way out", "draining", "in a library that waits", "ends by itself"],
)
def test_a_process_ends_in_time(number: signal.Signals, drains: bool, does: str, then: str, said: str) -> None:
    """The process ends with exit code 0 within its time limit; before there is work to finish, it is interrupted."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        program = PROGRAM.format(port=silent.getsockname()[1], drains=drains, does=does, then=then)
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            began = time.monotonic()
            process.send_signal(number)
            assert process.stdout.read().strip() in {said, ""}
            assert process.wait(20) == 0
        assert time.monotonic() - began < 4


def test_an_interrupt_that_a_library_takes_for_an_error() -> None:
    """The process ends with exit code 0 and without a stack trace."""
    command = [sys.executable, "-c", TRANSLATES]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == ("", "")
        assert process.returncode == 0


def test_an_error_that_no_signal_made() -> None:
    """An error without a signal is raised unchanged."""
    with pytest.raises(TypeError, match="a fault"), until_a_signal():
        raise TypeError("a fault")


FORKS = """
import os, signal
from rowkind.service.machine.signals import Signals
with Signals():
    if not os.fork():
        # As after any fork, the signals of the parent do not concern the child.
        print(signal.getsignal(signal.SIGTERM).name, flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not os.fork():
            print(signal.getsignal(signal.SIGTERM).name, flush=True)
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
"""


def test_what_a_forked_process_does_with_a_signal_stays() -> None:
    """Spark's processes are forked from one that ignores SIGTERM, so that a batch ends even if all get the signal."""
    done = subprocess.run([sys.executable, "-c", FORKS], text=True, capture_output=True, check=True)
    assert done.stdout.split() == ["SIG_DFL", "SIG_IGN"]
