"""The measuring clients: Kafka's own performance tools, and small librdkafka loops in processes of
their own.

Each function runs one client against any broker, and returns its results.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.peer import SCRIPT, jars

HERE = Path(__file__).parent
TOOLS = "org.apache.kafka.tools"
MIB = 1 << 20


class ClientError(RuntimeError):
    """A client failed; the text is its output."""


def java() -> list[str]:
    """Return the command of a Java program with one source file and Kafka's classes."""
    quiet = f"-Dlog4j2.configurationFile={SCRIPT.parent / 'log4j2.yaml'}"
    return ["java", "-Xmx512m", "-cp", f"{jars()}/*", quiet]


def _run(command: Sequence[str | Path], timeout_s: float = 600) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "KAFKA_HEAP": "512m"},
    )
    if done.returncode:
        raise ClientError(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _command_config(path: Path | None) -> list[str | Path]:
    return [] if path is None else ["--command-config", path]


def java_produce(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    config: Path | None = None,
) -> float:
    """Run ProducerPerformance with acks=all and otherwise its defaults; return MiB/s after the
    first fifth of the records.

    :param config: a file with configs of the client
    """
    out = _run(
        [
            SCRIPT,
            "run",
            f"{TOOLS}.ProducerPerformance",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--warmup-records",
            str(records // 5),
            "--record-size",
            str(record_bytes),
            "--throughput",
            "-1",
            "--command-property",
            "acks=all",
            *_command_config(config),
        ]
    )
    rates = re.findall(
        r"records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).*?max latency, \d+ ms 50th", out
    )
    if not rates:
        raise ClientError(out)
    return float(rates[-1][1])


def _table_row(out: str) -> dict[str, str]:
    """Parse the one row of a tool that prints comma-separated names and values."""
    lines = [line for line in out.splitlines() if "," in line]
    names, values = (
        next(line for line in lines if line.startswith("start.time")),
        next(line for line in reversed(lines) if re.match(r"\d{4}-", line)),
    )
    return dict(zip(names.split(", "), values.split(", "), strict=True))


def java_consume(
    bootstrap: str,
    topic: str,
    records: int,
    config: Path | None = None,
) -> float:
    """Run ConsumerPerformance (classic protocol) in a new group from the start of the topic; return
    MiB/s without the time to join.

    :param config: a file with configs of the client
    """
    row = _table_row(
        _run(
            [
                SCRIPT,
                "run",
                f"{TOOLS}.ConsumerPerformance",
                "--bootstrap-server",
                bootstrap,
                "--topic",
                topic,
                "--num-records",
                str(records),
                "--group",
                f"perf-{time.time_ns()}",
                "--timeout",
                "60000",
                *_command_config(config),
            ]
        )
    )
    return float(row["fetch.MB.sec"])


def java_share_consume(
    bootstrap: str, topic: str, group: str, records: int, consumers: int, explicit: bool
) -> tuple[float, float]:
    """Run `java/ShareConsume.java`; return MiB/s and records/s accepted by the share consumers of
    one group, once they run steadily.

    :param explicit: acknowledge each record, and release every second one once
    """
    mode = "explicit" if explicit else "implicit"
    program = [*java(), HERE / "java" / "ShareConsume.java"]
    out = _run([*program, bootstrap, topic, group, str(records), str(consumers), mode])
    words = out.split()
    seen = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    seconds = seen["nanoseconds"] / 1e9
    return seen["bytes"] / MIB / seconds, seen["records"] / seconds


def java_transactional_produce(
    bootstrap: str, topic: str, transactions: int, records: int, record_bytes: int
) -> float:
    """Run `java/TransactionalProduce.java`: transactions of `records`, one after another; return
    records/s.
    """
    program = [*java(), HERE / "java" / "TransactionalProduce.java"]
    return float(
        _run([*program, bootstrap, topic, str(transactions), str(records), str(record_bytes)])
    )


def librdkafka_produce(bootstrap: str, topic: str, records: int, record_bytes: int) -> float:
    """Produce with confluent-kafka, acks=all and otherwise its defaults; return MiB/s after warm-
    up.
    """
    out = _run(
        [sys.executable, HERE / "produce.py", bootstrap, topic, str(records), str(record_bytes)]
    )
    return float(json.loads(out.splitlines()[-1])["mib_per_s"])


def librdkafka_consume(bootstrap: str, topic: str, records: int) -> float:
    """Consume `records` with librdkafka's consume(10000); return MiB/s of values."""
    return float(
        json.loads(_run([sys.executable, HERE / "consume.py", bootstrap, topic, str(records)]))[
            "mib_per_s"
        ]
    )


def end_to_end_latency(
    bootstrap: str, topic: str, seconds: float, rate: int = 1000
) -> tuple[float, float]:
    """Produce `rate` records a second and consume them with librdkafka; return p50, p99 in ms."""
    out = _run([sys.executable, HERE / "latency.py", bootstrap, topic, str(seconds), str(rate)])
    seen = json.loads(out)
    return float(seen["p50_ms"]), float(seen["p99_ms"])


def share_consumer(bootstrap: str, topic: str, work: str, amount: int) -> dict[str, float]:
    """Run a work of `bench/share_consumer.py`; return its numbers."""
    command = [sys.executable, "-m", "bench.share_consumer", bootstrap, topic, work, str(amount)]
    numbers: dict[str, float] = json.loads(_run(command).splitlines()[-1])
    return numbers
