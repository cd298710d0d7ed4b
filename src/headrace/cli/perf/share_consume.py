"""``headrace perf share-consume``: measure the throughput of a share group with librdkafka.

The options and the output are those of Kafka's ``kafka-share-consumer-perf-test``. Each member runs
in a thread; each poll accepts the records of the previous one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaException, ShareConsumer

from headrace.cli.errors import BadUsage, Failure
from headrace.cli.librdkafka import (
    librdkafka_config,
    librdkafka_options,
    one_line,
    partitions,
    reason,
)
from headrace.cli.options import flag, number_option, positive_number
from headrace.cli.share_start import starting_point
from headrace.cli.tables import json_line
from headrace.client import ClientError
from headrace.client.settings import UnsupportedSetting, settings

from .report import MIB, Bar

DEFAULT_GROUP = "perf-share-consumer"
_OF_OTHER_CONSUMERS = frozenset(
    (
        "auto.offset.reset",
        "enable.auto.commit",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "partition.assignment.strategy",
        "session.timeout.ms",
    )
)
"""What a file has for consumers of other groups; librdkafka refuses it for a share group."""
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, "
    "fetch.time.ms"
)

_POLL_S = 0.1
_CHECK_EVERY_S = 0.05


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Measure the throughput of a share group that accepts every record of a topic."
    )
    librdkafka_options(parser, "--consumer-props", "--consumer.config")
    parser.add_argument("--topic", required=True, help="the topic to consume from")
    parser.add_argument(
        "--num-records",
        "--messages",
        type=positive_number,
        required=True,
        metavar="N",
        help="number of records after which to end; a few more may be read",
    )
    parser.add_argument(
        "--group", default=DEFAULT_GROUP, help=f"the share group (default: {DEFAULT_GROUP})"
    )
    number_option(parser, "--threads", "number of members", 1)
    number_option(parser, "--timeout", "longest wait for a record", 10_000, metavar="MS")
    number_option(parser, "--fetch-size", "limit of the size of one response", metavar="BYTES")
    number_option(
        parser,
        "--socket-buffer-size",
        "receive buffer of TCP (default: the system's)",
        metavar="BYTES",
    )
    number_option(parser, "--reporting-interval", "interval between two lines", 5000, metavar="MS")
    flag(parser, "--show-detailed-stats", "print a line for each interval and member")
    flag(parser, "--show-consumer-stats", "print a line for each member at the end")
    flag(parser, "--hide-header", "do not print the names of the columns")
    flag(parser, "--json", "print the results as one JSON object")


@dataclass(frozen=True, slots=True)
class Count:
    """Number and size of the records read since a point in time.

    :param started_s: seconds since the epoch
    """

    started_s: float
    records: int = 0
    size_bytes: int = 0

    def row(self, ended_s: float) -> dict[str, str]:
        """Return the columns of Kafka's tool, by name.

        :param ended_s: seconds since the epoch
        """
        elapsed_ms = max(int((ended_s - self.started_s) * 1000), 1)
        mib = self.size_bytes / MIB
        values = (
            _stamp(self.started_s),
            _stamp(ended_s),
            f"{mib:.4f}",
            f"{mib / elapsed_ms * 1000:.4f}",
            f"{self.records / elapsed_ms * 1000:.4f}",
            str(self.records),
            str(elapsed_ms),
        )
        return dict(zip(HEADER.split(", "), values, strict=True))


def _stamp(at_s: float) -> str:
    at = datetime.fromtimestamp(at_s)
    return f"{at:%Y-%m-%d %H:%M:%S}:{at.microsecond // 1000:03}"


def _numbers(row: dict[str, str]) -> dict[str, Any]:
    return {
        name: text if name.endswith(".time") else json.loads(text) for name, text in row.items()
    }


class Member(threading.Thread):
    """One member of the group.

    :ivar total: the records read so far
    :ivar problem: the error that ended it; None if there is none
    """

    def __init__(
        self, number: int, config: dict[str, Any], topic: str, stopping: threading.Event
    ) -> None:
        super().__init__(name=f"share-consumer-{number}", daemon=True)
        self.number = number
        self.client_id = config["client.id"]
        self.problem: str | None = None
        self.total = Count(time.time())
        self._consumer = ShareConsumer(config)
        self._topic = topic
        self._group_id = str(config["group.id"])
        self._stopping = stopping

    def run(self) -> None:
        """Read until stopped, then accept the last records."""
        try:
            self._consumer.subscribe([self._topic])
            while not self._stopping.is_set():
                self._take(self._consumer.poll(timeout=_POLL_S))
            self._consumer.commit_sync()
            self._consumer.close()
        except KafkaException as error:
            self.problem = reason(error, self._topic, "READ", self._group_id)
            self._stopping.set()

    def _take(self, messages: Any) -> None:
        size_bytes = 0
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            size_bytes += len(message) + len(message.key() or b"")
        total = self.total
        self.total = Count(
            total.started_s, total.records + len(messages), total.size_bytes + size_bytes
        )


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0, or 130 when interrupted
    :raises Failure: no broker answers, the topic is missing, or no record came in time
    """
    of_other_consumers = _OF_OTHER_CONSUMERS - {name for name, _ in options.command_property}
    config = {
        "client.id": f"{DEFAULT_GROUP}-client",
        **{k: v for k, v in librdkafka_config(options).items() if k not in of_other_consumers},
        "group.id": options.group,
    }
    if options.fetch_size is not None:
        config |= {
            "fetch.max.bytes": options.fetch_size,
            "message.max.bytes": min(options.fetch_size, 1_000_000),
        }
    if options.socket_buffer_size is not None:
        config["socket.receive.buffer.bytes"] = options.socket_buffer_size
    partitions({k: v for k, v in config.items() if k != "group.id"}, options.topic)
    asyncio.run(_print_hint(options, config))
    stopping = threading.Event()
    try:
        members = [
            Member(
                n + 1,
                {**config, "client.id": f"{config['client.id']}-{n + 1}"},
                options.topic,
                stopping,
            )
            for n in range(options.threads)
        ]
    except KafkaException as error:
        raise BadUsage(one_line(error)) from error
    except ValueError as error:  # a property that is not for share groups
        raise BadUsage(str(error)) from error
    return ShareConsumeTest(options, members, stopping).run()


async def _print_hint(options: Namespace, config: Mapping[str, Any]) -> None:
    try:
        cluster = settings(config).cluster()
    except UnsupportedSetting:  # librdkafka may support it: skip the hint
        return
    try:
        hint = await starting_point(cluster, options.bootstrap_server, options.group, options.topic)
    except ClientError:
        hint = None
    finally:
        await cluster.close()
    if hint is not None:
        print(hint, file=sys.stderr)


class ShareConsumeTest:
    """One run of the test."""

    def __init__(
        self, options: Namespace, members: list[Member], stopping: threading.Event
    ) -> None:
        self._options = options
        self._members = members
        self._stopping = stopping
        self._started_s = time.time()
        self._reported = self._counts()

    def _counts(self) -> list[Count]:
        """Return the count of each member so far."""
        return [member.total for member in self._members]

    def _together(self, counts: list[Count]) -> Count:
        return Count(
            self._started_s, sum(c.records for c in counts), sum(c.size_bytes for c in counts)
        )

    def run(self) -> int:
        """Run the members until they have read enough records, and print the results.

        :returns: the exit status
        :raises Failure: a member failed, or no record came in time
        """
        options = self._options
        if not options.json and not options.hide_header:
            print(HEADER, flush=True)
        for member in self._members:
            member.start()
        with Bar(f"consuming {options.topic}", options.num_records) as bar:
            try:
                status, problem = 0, self._watch(bar)
            except KeyboardInterrupt:
                status, problem = 130, None
            ended_s, counts = time.time(), self._counts()
            self._stopping.set()
            for member in self._members:
                member.join()
        self._report(ended_s, counts)
        problem = next((member.problem for member in self._members if member.problem), problem)
        if problem is not None:
            raise Failure(problem)
        return status

    def _watch(self, bar: Bar) -> str | None:
        """Wait until enough records are read; return the problem that ended the wait, or None."""
        options = self._options
        seen, last_came_s = 0, time.monotonic()
        next_line_s = last_came_s + options.reporting_interval / 1000
        while (total := self._together(self._counts())).records < options.num_records:
            now_s = time.monotonic()
            if total.records > seen:
                seen, last_came_s = total.records, now_s
            elif now_s - last_came_s > options.timeout / 1000:
                return (
                    f"no record came for {options.timeout} ms: {seen} of {options.num_records} "
                    f"were read"
                )
            if now_s >= next_line_s:
                next_line_s = now_s + options.reporting_interval / 1000
                self._interval()
            bar.update(
                total.records,
                f"{total.records / max(time.time() - self._started_s, 1e-3):,.0f} records/s",
            )
            if self._stopping.wait(_CHECK_EVERY_S):
                return None
        return None

    def _interval(self) -> None:
        """Print a line for each member on the last interval."""
        now_s, counts = time.time(), self._counts()
        if self._options.show_detailed_stats and not self._options.json:
            for member, now, before in zip(self._members, counts, self._reported, strict=True):
                window = Count(
                    before.started_s,
                    now.records - before.records,
                    now.size_bytes - before.size_bytes,
                )
                print(
                    f"{', '.join(window.row(now_s).values())} for share consumer {member.number}",
                    flush=True,
                )
        self._reported = [Count(now_s, count.records, count.size_bytes) for count in counts]

    def _report(self, ended_s: float, counts: list[Count]) -> None:
        options, row = self._options, self._together(counts).row(ended_s)
        of_member = [
            (member, count.row(ended_s))
            for member, count in zip(self._members, counts, strict=True)
        ]
        if options.json:
            consumers = [
                {"client.id": member.client_id, **_numbers(own)} for member, own in of_member
            ]
            print(json_line({**_numbers(row), "consumers": consumers}))
            return
        if options.show_consumer_stats:
            for member, own in of_member:
                print(
                    f"Share consumer {member.number} having client id {member.client_id} "
                    f"consumption metrics- "
                    f"{', '.join(own.values())}"
                )
        print(", ".join(row.values()))
