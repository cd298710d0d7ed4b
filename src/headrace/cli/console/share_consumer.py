"""``headrace console-share-consumer``: print the records of a topic as a member of a share group
(KIP-932).

The options and the output are those of Kafka's ``kafka-console-share-consumer``. Unlike that tool,
it acquires only records that it prints, because acquiring and releasing a record adds to its
delivery count.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from headrace.cli.client_options import (
    client_config,
    client_options,
    connection_settings,
)
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.options import flag, repeated_option, setting
from headrace.cli.share_start import starting_point
from headrace.client import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    ClientError,
    Cluster,
    RangeConsumer,
    UnreadableBatch,
    decode,
)
from headrace.client.cluster import parse_bootstrap
from headrace.client.share.spans import Span, normalize, subtract
from headrace.protocol.partitions import TopicPartition

from .formatting import formatter_options, message_formatter, write_out
from .message_formatter import Delivered, MessageFormatter, Undecodable

T = TypeVar("T")

DEFAULT_GROUP = "console-share-consumer"

_MAX_WAIT_MS = 500
_MAX_NUMBER = (1 << 31) - 1
_ENDED_BY_SIGNAL = 128
_SUPPORTED_CONFIGS = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "fetch.max.bytes",
    "max.poll.records",
)
_SECURITY_CONFIGS = ("security.protocol", "sasl.", "ssl.", "enable.ssl.certificate.verification")


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Print the records of a topic as a member of a share group, and accept each."
    )
    client_options(parser)
    parser.add_argument("--topic", required=True, help="the topic to consume from")
    parser.add_argument(
        "--group", default=DEFAULT_GROUP, help=f"the share group (default: {DEFAULT_GROUP})"
    )
    parser.add_argument("--max-messages", type=int, metavar="N", help="end after N records")
    parser.add_argument(
        "--timeout-ms", type=int, metavar="MS", help="end after MS without a record"
    )
    outcome = parser.add_mutually_exclusive_group()
    flag(outcome, "--reject", "reject the records instead of accepting them")
    flag(outcome, "--release", "release the records, to be delivered again")
    flag(
        parser,
        "--reject-message-on-error",
        "reject a record that cannot be formatted, instead of ending",
    )
    flag(
        parser,
        "--from-beginning",
        "check that the group starts at the oldest record; if it is new to the topic and does not, "
        "fail and print the command that resets it",
    )
    formatter_options(parser)
    repeated_option(
        parser,
        "--command-property",
        "NAME=VALUE",
        f"client configs: {', '.join(_SUPPORTED_CONFIGS[1:])}, and those of TLS and SASL; "
        f"may be repeated",
        setting,
    )


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0; 130 or 143 when ended by SIGINT or SIGTERM
    :raises Failure: no broker answers, the topic is missing, or a record cannot be formatted
    """
    for name in ("max_messages", "timeout_ms"):
        if (getattr(options, name) or 0) < 0:
            raise BadUsage(f"--{name.replace('_', '-')} cannot be negative")
    formatter, configs = message_formatter(options), _configs(options)
    try:
        parse_bootstrap(configs["bootstrap.servers"])
        console = Console(options, formatter, configs)
    except ValueError as error:
        raise BadUsage(str(error)) from error
    try:
        return asyncio.run(console.run())
    except ClientError as error:
        raise Failure(str(error)) from error
    finally:
        print(f"Processed a total of {console.processed} messages", file=sys.stderr)


def _configs(options: Namespace) -> dict[str, Any]:
    """Return the client configuration.

    :raises BadUsage: a setting of ``--command-property`` has no effect here. A file may have
        settings for other commands
    """
    for name, _ in options.command_property:
        if name not in _SUPPORTED_CONFIGS and not name.startswith(_SECURITY_CONFIGS):
            supported = ", ".join(_SUPPORTED_CONFIGS)
            raise BadUsage(
                f"the client config {name} is not supported here; supported are {supported}, and "
                f"those of TLS and SASL"
            )
    return client_config(options)


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    """Return a client config that is a number.

    :raises BadUsage: it is not one that a request can have
    """
    text = configs.get(name, str(default))
    if not re.fullmatch("[0-9]{1,10}", text) or not 0 < int(text) <= _MAX_NUMBER:
        raise BadUsage(f"{name} is '{text}', not a number from 1 to {_MAX_NUMBER}")
    return int(text)


class Console:
    """One run of the command.

    :ivar processed: number of records printed, or rejected as malformed, and acknowledged
    """

    def __init__(
        self, options: Namespace, formatter: MessageFormatter, configs: Mapping[str, str]
    ) -> None:
        self.processed = 0
        self._options = options
        self._line = formatter.json_line if options.json else formatter.line
        self._type = AcknowledgeType.ACCEPT
        if options.reject:
            self._type = AcknowledgeType.REJECT
        elif options.release:
            self._type = AcknowledgeType.RELEASE
        self._servers = configs["bootstrap.servers"]
        self._security = connection_settings(configs).security
        self._client_id = configs.get("client.id", DEFAULT_GROUP)
        self._rack = configs.get("client.rack")
        self._max_bytes = _number(configs, "fetch.max.bytes", 50 * 1024 * 1024)
        self._max_poll_records = _number(configs, "max.poll.records", 500)
        self._stopped_by: signal.Signals | None = None
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Consume until a limit or a signal ends it.

        :returns: the exit status
        :raises Failure: a record cannot be formatted
        :raises ClientError: the membership ended
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_on, number)
        await self._unless_stopped(self._print_hint())
        consumer = RangeConsumer(
            self._servers,
            self._options.group,
            [self._options.topic],
            client_id=self._client_id,
            rack_id=self._rack,
            security=self._security,
        )
        try:
            await self._unless_stopped(consumer.start())
            await self._consume(consumer)
        finally:
            await consumer.close()
        return 0 if self._stopped_by is None else _ENDED_BY_SIGNAL + self._stopped_by

    def _stop_on(self, number: signal.Signals) -> None:
        self._stopped_by = number
        self._stop.set()

    async def _print_hint(self) -> None:
        async with Cluster(
            self._servers, client_id=self._client_id, security=self._security
        ) as cluster:
            problem = await starting_point(
                cluster, self._servers, self._options.group, self._options.topic
            )
        if problem is not None:
            if self._options.from_beginning:
                raise Failure(problem)
            print(problem, file=sys.stderr)

    async def _consume(self, consumer: RangeConsumer) -> None:
        loop = asyncio.get_running_loop()
        last_came_s = loop.time()
        while (left := self._left()) > 0:
            wait_ms = _MAX_WAIT_MS
            if self._options.timeout_ms is not None:
                wait_ms = min(
                    wait_ms, int(self._options.timeout_ms - (loop.time() - last_came_s) * 1000)
                )
                if wait_ms <= 0:
                    return
            acquired = await self._acquire(consumer, min(left, self._max_poll_records), wait_ms)
            if acquired is None:
                return
            if acquired.ranges:
                await self._show(consumer, acquired)
                last_came_s = loop.time()

    def _left(self) -> int:
        most = self._options.max_messages
        return self._max_poll_records if most is None else most - self.processed

    async def _acquire(
        self, consumer: RangeConsumer, max_records: int, wait_ms: int
    ) -> Acquired | None:
        """Acquire records.

        :returns: without ranges if no records came within ``wait_ms``; None after a signal: closing
            the consumer then releases what was acquired
        """
        return await self._unless_stopped(
            consumer.acquire(
                max_records=max_records,
                max_wait_ms=wait_ms,
                max_bytes=self._max_bytes,
                mode=AcquireMode.RECORD_LIMIT,
            )
        )

    async def _unless_stopped(self, call: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a call; None after a signal, which cancels it."""
        calling = asyncio.create_task(call)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((calling, stopping), return_when=asyncio.FIRST_COMPLETED)
            return None if self._stop.is_set() else await calling
        finally:
            for task in (calling, stopping):
                task.cancel()
            await asyncio.gather(calling, stopping, return_exceptions=True)

    async def _show(self, consumer: RangeConsumer, acquired: Acquired) -> None:
        """Print the acquired records, then acknowledge the printed ones.

        The other records are released when the session ends.

        :raises Failure: a record cannot be formatted
        """
        lines: list[bytes] = []
        outcomes: list[Acknowledgement] = []
        problem: Failure | None = None
        for place, ranges in acquired.ranges_by_partition().items():
            topic, partition = place
            shown: dict[AcknowledgeType, list[Span]] = {}
            for record in _delivered(acquired, place):
                kind = self._type
                try:
                    lines.append(self._line(record))
                except Undecodable as error:
                    if not self._options.reject_message_on_error:
                        problem = Failure(
                            f"cannot format {topic}-{partition} offset {record.offset}: {error}"
                        )
                        break
                    kind = AcknowledgeType.REJECT
                shown.setdefault(kind, []).append((record.offset, record.offset))
            else:  # acknowledge offsets without a record: compacted, or transaction markers
                spans = [(run.first_offset, run.last_offset) for run in ranges]
                seen = normalize([span for of_kind in shown.values() for span in of_kind])
                shown[AcknowledgeType.GAP] = subtract(normalize(spans), seen)
            outcomes += (
                Acknowledgement(topic, partition, *span, kind, ranges[0].topic_id)
                for kind, of_kind in shown.items()
                for span in normalize(of_kind)
            )
            if problem is not None:
                break
        # In a thread, so that heartbeats go on while the reader of the output is slow.
        await asyncio.to_thread(write_out, b"".join(lines))
        await self._acknowledge(consumer, outcomes)
        if problem is not None:
            raise problem

    async def _acknowledge(self, consumer: RangeConsumer, outcomes: list[Acknowledgement]) -> None:
        taken = set(await consumer.acknowledge(outcomes))
        for outcome in outcomes:
            if outcome.type is AcknowledgeType.GAP:
                continue
            self.processed += outcome.last_offset - outcome.first_offset + 1
            if outcome not in taken:
                print(
                    f"{outcome.topic}-{outcome.partition} offsets {outcome.first_offset} to "
                    f"{outcome.last_offset} were printed after their locks had expired: "
                    "they will be delivered again",
                    file=sys.stderr,
                )


def _delivered(acquired: Acquired, place: TopicPartition) -> list[Delivered]:
    """Return the acquired records of a partition.

    :raises Failure: a batch is corrupt
    """
    data, ranges = acquired.data.get(place, b""), acquired.ranges_by_partition()[place]
    try:
        return [
            Delivered(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp_type,
                record.timestamp_ms,
                record.delivery_count,
                record.headers,
                record.key,
                record.value,
            )
            for record in decode(data, ranges)
        ]
    except UnreadableBatch as error:
        raise Failure(str(error)) from error
