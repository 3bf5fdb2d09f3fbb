"""Time from sending a change until a consumer of committed records sees its result, at a fixed rate.

Half of the changes are orders, half payments, each for a random order that was sent before it. A result row is traced
to its payment, the later of its two parents. The record's timestamp, which the sender sets, is the time at which the
payment was sent. The measurement counts the first result row of each payment that was sent after the warm-up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.compare.bench import Bench
from tests.bench.compare.engine import SINK_PARTITIONS, Engine, EngineError, Progress
from tests.bench.compare.process import cpu_seconds
from tests.bench.compare.queries import Query
from tests.bench.compare.tables import Changes
from tests.bench.compare.workload import Sent, generate, records

_TICK_SECONDS = 0.01
_START_SECONDS = 180.0
_DRAIN_SECONDS = 30.0
_QUIET_SECONDS = 10.0
_FRAME_BYTES = 5


@dataclass(frozen=True)
class Latency:
    """Milliseconds from a payment to its first result row.

    - `sent`: how many payments were sent after the warm-up; `seen`: for how many of them a result row appeared. A
      payment that was never among the top three has no row.
    - `rate`: changes per second that were actually sent.
    - `cores`: the CPU seconds that the system used per second, the warm-up included.
    - `batches`: mean milliseconds of a batch by stage; empty for a system without batches. Stages of tasks are summed
      over all tasks.
    """

    rate: float
    sent: int
    seen: int
    p50: float
    p99: float
    worst: float
    cores: float
    batches: dict[str, float]


def latency(bench: Bench, engine: Engine, query: Query, rate: int, *, warm_up: float, seconds: float) -> Latency:
    """Send `rate` changes per second during warm-up and measurement; measure during the second period."""
    count = round(rate * (warm_up + seconds) / 2)
    orders, payments = trailing(count)
    topics = bench.topics("latency")
    sent_at = np.full(count, np.nan)
    seen_at = np.full(count, np.nan)
    ended = threading.Event()
    with bench.running(engine, query, "append", topics, quick=True) as (setting, running):
        running.progress()  # raises if it could not start
        watcher = threading.Thread(
            target=note_results, args=(setting.servers, setting.sink, engine.framed, seen_at, ended)
        )
        watcher.start()
        try:
            queues = (
                (topics["orders"], records(bench.registry, topics["orders"], "append", orders)),
                (topics["payments"], records(bench.registry, topics["payments"], "append", payments)),
            )
            producer = Producer({"bootstrap.servers": setting.servers, "linger.ms": 5})
            send(producer, queues, rate / 2, sent_at[:1])
            await_first(seen_at)
            before, cpu = running.progress(), cpu_seconds(running.pid)
            took = send(producer, queues, rate / 2, sent_at[1:])
            after, cpu = running.progress(), cpu_seconds(running.pid) - cpu
            drain(seen_at)
        finally:
            ended.set()
            watcher.join()
    measured = np.arange(count) >= round(rate * warm_up / 2)
    times = 1000 * (seen_at - sent_at)[measured & ~np.isnan(seen_at)]
    if not len(times):
        raise EngineError("no result row was seen")
    p50, p99 = np.percentile(times, [50, 99])
    return Latency(
        2 * count / took,
        int(measured.sum()),
        len(times),
        float(p50),
        float(p99),
        float(times.max()),
        cpu / took,
        _by_stage(before, after),
    )


def _by_stage(before: Progress, after: Progress) -> dict[str, float]:
    """Return milliseconds per batch, by stage."""
    count = after.batches - before.batches
    if not count:
        return {}
    spent = {stage: seconds - before.stages.get(stage, 0.0) for stage, seconds in after.stages.items()}
    whole = {"batch": after.batch_seconds - before.batch_seconds}
    return {stage: 1000 * seconds / count for stage, seconds in (whole | spent).items()}


def trailing(count: int, last: int | None = None) -> tuple[Changes, Changes]:
    """Return orders 0, 1, 2 … and as many payments, the n-th for one of the orders up to n or of the `last` of them."""
    orders, payments = generate("append", count, count)
    rng = np.random.default_rng(7)
    places = np.arange(count)
    orders.columns["order_id"] = pa.array(places)
    behind = (rng.random(count) * np.minimum(places + 1, count if last is None else last)).astype(np.int64)
    payments.columns["order_id"] = pa.array(places - behind)
    return orders, payments


def send(
    producer: Producer,
    queues: tuple[tuple[str, Iterator[Sent]], tuple[str, Iterator[Sent]]],
    rate: float,
    sent_at: npt.NDArray[np.float64],
) -> float:
    """Send `rate` records per second per queue; store each payment's send time, and return the seconds taken."""
    (orders_topic, orders), (payments_topic, payments) = queues
    started = time.monotonic()
    done, count = 0, len(sent_at)
    while done < count:
        due = min(count, int((time.monotonic() - started) * rate) + 1)
        for _ in range(due - done):
            _, value, _, partition = next(orders)
            producer.produce(orders_topic, value, partition=partition)
        for number in range(done, due):
            _, value, _, partition = next(payments)
            now = time.time()
            sent_at[number] = now
            producer.produce(payments_topic, value, partition=partition, timestamp=int(now * 1000))
        done = due
        producer.poll(0)
        time.sleep(_TICK_SECONDS)
    took = time.monotonic() - started
    producer.flush()
    return took


def note_results(
    servers: str, topic: str, framed: bool, seen_at: npt.NDArray[np.float64], ended: threading.Event
) -> None:
    """Store the time of the first result row of each payment."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(SINK_PARTITIONS)])
    skipped = _FRAME_BYTES if framed else 0
    while not ended.is_set():
        messages = consumer.consume(1000, 0.01)
        now = time.time()
        for message in messages:
            key = message.key()
            if message.error() is None and message.value() is not None and key is not None:
                payment = _long(key, skipped)  # type: ignore[arg-type] # bytes, without a deserializer
                if np.isnan(seen_at[payment]):
                    seen_at[payment] = now
    consumer.close()


def _long(data: bytes, at: int) -> int:
    """Decode the Avro long at this position."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        at += 1


def await_first(seen_at: npt.NDArray[np.float64]) -> None:
    """Wait until the query runs."""
    deadline = time.monotonic() + _START_SECONDS
    while np.isnan(seen_at[0]):
        if time.monotonic() > deadline:
            raise EngineError(f"no result in {_START_SECONDS:.0f} s")
        time.sleep(0.1)


def drain(seen_at: npt.NDArray[np.float64]) -> None:
    """Wait until no further rows arrive."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    seen, changed = -1, time.monotonic()
    while time.monotonic() < min(deadline, changed + _QUIET_SECONDS):
        now = int((~np.isnan(seen_at)).sum())
        if now != seen:
            seen, changed = now, time.monotonic()
        time.sleep(0.1)
