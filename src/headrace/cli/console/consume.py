"""``headrace consume``: print the records of topics, from an offset or a time, to an exact end.

The options and the output are those of Kafka's ``kafka-console-consumer``, and more.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
)

from headrace.cli.client_options import connection_settings, must_answer
from headrace.cli.errors import BadUsage, Failure, one_line_error
from headrace.cli.groups.options import check_pattern, timestamp_ms
from headrace.cli.librdkafka import (
    librdkafka_config,
    librdkafka_options,
    one_line,
    partitions,
    reason,
)
from headrace.cli.options import flag
from headrace.cli.perf.report import Bar
from headrace.client.cluster import TopicMetadata
from headrace.client.errors import ClientError
from headrace.client.list_offsets import EARLIEST, LATEST, list_offsets
from headrace.client.message_headers import UnreadableHeaders, message_headers
from headrace.client.partition_reader import PartitionReader
from headrace.patterns import matches
from headrace.protocol.partitions import TopicPartition

from .formatting import formatter_options, message_formatter, write_out
from .message_formatter import Delivered, MessageFormatter, Undecodable
from .value_files import ValueFiles

_RECORDS_AT_ONCE = 500
_WAIT_S = 0.2
_CALL_TIMEOUT_MS = 30_000
_ENDED_BY_SIGNAL = 128
_POLLS_TO_LEAVE = 50
_TIMESTAMP_TYPES = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
_TRANSIENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
    }
)
"""Errors from which librdkafka recovers."""
_MAX_OFFSET = (1 << 63) - 1
_OFFSETS = {"earliest": EARLIEST, "latest": LATEST}
_EPILOG = """\
examples:
  headrace consume orders --from-beginning --max-messages 10
  headrace consume orders --partition 3 --offset 4711 --formatter-property print.key=true
  headrace consume orders --from-time 2026-11-20T08:00:00Z --to-time 2026-11-20T09:00:00Z --json
  headrace consume orders --group audit --from-beginning --to-end > orders.txt
  headrace consume scans --from-beginning --to-end --to-directory scans/
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Print the records of a topic, or of several."
    parser.usage = "%(prog)s [TOPIC] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="TOPIC", help="the topic")
    parser.add_argument("--topic", help="the topic, as in Kafka's tool")
    parser.add_argument("--include", metavar="REGEX", help="all topics whose whole name matches")
    start = parser.add_argument_group("start and end")
    flag(start, "--from-beginning", "from the oldest record (default: new ones)")
    start.add_argument(
        "--partition", type=int, action="append", metavar="N", help="a partition; may be repeated"
    )
    start.add_argument(
        "--offset",
        type=offset,
        metavar="OFFSET",
        help="with --partition: from this offset, earliest or latest",
    )
    start.add_argument(
        "--from-time",
        type=timestamp_ms,
        metavar="TIME",
        help="from the first record with this timestamp or a later one: ISO 8601, or milliseconds",
    )
    start.add_argument(
        "--to-time",
        type=timestamp_ms,
        metavar="TIME",
        help="end before the first record with this timestamp or a later one",
    )
    flag(start, "--to-end", "end with the last record that is there at the start")
    start.add_argument("--max-messages", type=int, metavar="N", help="end after N records")
    start.add_argument("--timeout-ms", type=int, metavar="MS", help="end after MS without a record")
    parser.add_argument(
        "--group",
        metavar="GROUP",
        help="consume as a member of this group, and commit what was printed (default: no group)",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="with read_committed without records of open and aborted transactions",
    )
    flag(
        parser,
        "--skip-message-on-error",
        "skip a record that cannot be formatted, instead of ending",
    )
    parser.add_argument(
        "--to-directory",
        type=Path,
        metavar="DIR",
        help="write each value to the file TOPIC-PARTITION-OFFSET of this directory",
    )
    formatter_options(parser)
    librdkafka_options(parser, "--consumer-property", "--consumer.config")


def offset(text: str) -> int:
    """Parse an offset: a number, ``earliest`` or ``latest``.

    :raises ArgumentTypeError: it is not an offset
    """
    if text in _OFFSETS:
        return _OFFSETS[text]
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > _MAX_OFFSET:
        raise ArgumentTypeError(f"{text!r} is not an offset: a number, earliest or latest")
    return int(text)


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.topic``.

    :raises BadUsage: they contradict each other
    """
    named = [one for one in (*options.words, options.topic, options.include) if one is not None]
    if len(named) != 1:
        raise BadUsage("name one topic, or give --include REGEX")
    if options.words:
        (options.topic,) = options.words
    for name in ("max_messages", "timeout_ms"):
        if (getattr(options, name) or 0) < 0:
            raise BadUsage(f"--{name.replace('_', '-')} cannot be negative")
    starts = ("from_beginning", "offset", "from_time")
    given = [name for name in starts if getattr(options, name) not in (None, False)]
    if len(given) > 1:
        raise BadUsage(
            " and ".join(f"--{name.replace('_', '-')}" for name in given) + " exclude each other"
        )
    if options.offset is not None and options.partition is None:
        raise BadUsage("--offset takes --partition, too")
    if options.group is not None:
        if not options.group:
            raise BadUsage("--group takes the id of a group, which is not empty")
        for name in ("partition", "from_time", "to_time"):
            if getattr(options, name) is not None:
                raise BadUsage(f"--{name.replace('_', '-')} and --group exclude each other")
        if options.to_end:
            raise BadUsage("--to-end and --group exclude each other: use --timeout-ms")
    if options.include is not None:
        check_pattern("--include", options.include)
        if options.partition is not None:
            raise BadUsage("--include and --partition exclude each other")


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0; 130 or 143 when ended by SIGINT or SIGTERM
    :raises Failure: no broker answers, the topic is missing, or a record cannot be formatted
    """
    check(options)
    formatter = message_formatter(options)
    files = None
    if options.to_directory is not None:
        try:
            files = ValueFiles(options.to_directory)
        except OSError as error:
            raise BadUsage(f"cannot write to {one_line_error(error)}") from error
    try:
        return _run(options, formatter, files)
    finally:
        if files is not None:
            files.close()


def _run(options: Namespace, formatter: MessageFormatter, files: ValueFiles | None) -> int:
    config = librdkafka_config(options)
    count = 0
    if options.topic is None:
        must_answer(config)
    else:
        count = partitions(config, options.topic)
    for number in options.partition or ():
        if not 0 <= number < count:
            raise BadUsage(f"topic '{options.topic}' has no partition {number}: it has {count}")
    with _stopping() as stopped_by:
        source = (
            Partitions(options, config, count)
            if options.group is None
            else Member(options, config, formatter.shows_headers or options.json)
        )
        reader = Reader(options, _output(options, formatter, files), source, stopped_by)
        try:
            status = reader.run()
            source.commit()
            return status
        except ClientError as error:
            raise Failure(str(error)) from error
        except KafkaException as error:
            raise Failure(one_line(error)) from error
        finally:
            source.close()
            print(f"Processed a total of {reader.processed} messages", file=sys.stderr)


def _output(
    options: Namespace, formatter: MessageFormatter, files: ValueFiles | None
) -> Callable[[Delivered], bytes]:
    """Return the function that returns the line of a record; with ``files`` it writes the value
    instead, and the line is empty.
    """
    if files is None:
        return formatter.json_line if options.json else formatter.line

    def write_file(record: Delivered) -> bytes:
        try:
            files.write(record)
        except OSError as error:
            raise Failure(f"cannot write {one_line_error(error)}") from error
        except ValueError as error:
            raise Failure(str(error)) from error
        return b""

    return write_file


@contextmanager
def _stopping() -> Iterator[list[int]]:
    """Yield a list that gets the numbers of the signals that end the run."""
    stopped_by: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda number, _: stopped_by.append(number)) for n in numbers}
    try:
        yield stopped_by
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Partitions:
    """Partitions that are read without a group: nobody is asked for a coordinator.

    :param count: number of partitions of the topic; 0 with ``--include``
    :ivar total: number of offsets up to the ends; None without ends
    :raises BadUsage: a setting cannot be used
    """

    def __init__(self, options: Namespace, config: Mapping[str, Any], count: int) -> None:
        self.total: int | None = None
        self._options = options
        self._count = count
        self._isolation_level = int(options.isolation_level == "read_committed")
        self._cluster = connection_settings(config).cluster()
        self._runner = asyncio.Runner()
        self._reader: PartitionReader | None = None

    def begin(self) -> None:
        """Look up where to begin and to end.

        :raises Failure: no topic matches
        :raises ClientError: a broker refuses
        """
        self._reader = self._runner.run(self._begin())

    def next(self, max_records: int, wait_s: float) -> list[Delivered] | None:
        """Return the next records, none if none came within ``wait_s``, None at the end.

        :raises ClientError: reading failed
        """
        assert self._reader is not None
        records = self._runner.run(self._reader.read(max_records, wait_s))
        if records is None:
            return None
        return [
            Delivered(
                topic,
                partition,
                record.offset,
                timestamp_type,
                record.timestamp_ms,
                None,
                record.headers,
                record.key,
                record.value,
            )
            for topic, partition, timestamp_type, record in records
        ]

    def printed(self, records: Sequence[Delivered]) -> None:
        """Do nothing: nothing is committed."""

    def commit(self) -> None:
        """Do nothing: nothing is committed."""

    def close(self) -> None:
        """Close the connections."""
        with self._runner:
            self._runner.run(self._cluster.close())

    async def _begin(self) -> PartitionReader:
        options = self._options
        places = [(options.topic, n) for n in options.partition or range(self._count)]
        if options.include is not None:
            topics = {
                name: topic
                for name, topic in (await self._cluster.metadata(None)).items()
                if matches(options.include, name) and isinstance(topic, TopicMetadata)
            }
            if not topics:
                raise Failure(f"no topic matches '{options.include}'")
            places = [(name, n) for name, topic in topics.items() for n in topic.leaders]
        if options.from_time is not None:
            starts = await self._offsets_at(places, max(0, options.from_time))
        elif options.offset is not None and options.offset >= 0:
            starts = dict.fromkeys(places, options.offset)
        else:
            is_earliest = options.from_beginning or options.offset == EARLIEST
            starts = await self._offsets_at(places, EARLIEST if is_earliest else LATEST)
        ends: dict[TopicPartition, int] = {}
        if options.to_end or options.to_time is not None:
            when = LATEST if options.to_time is None else max(0, options.to_time)
            ends = await self._offsets_at(places, when)
            firsts = await self._offsets_at(places, EARLIEST)
            begins = {place: max(starts[place], firsts[place]) for place in places}
            starts = {place: starts[place] for place in places if begins[place] < ends[place]}
            self.total = sum(ends[place] - begins[place] for place in starts)
        return PartitionReader(self._cluster, starts, ends, self._isolation_level)

    async def _offsets_at(
        self, places: Sequence[TopicPartition], when: int
    ) -> dict[TopicPartition, int]:
        """Look up offsets by time. A time after the last record gives the end of the log.

        :param when: in ms since the epoch, or EARLIEST or LATEST
        """
        listed = await list_offsets(
            self._cluster,
            dict.fromkeys(places, when),
            isolation_level=self._isolation_level,
            timeout_ms=_CALL_TIMEOUT_MS,
        )
        offsets = {place: answer.offset for place, answer in listed.items()}
        after = [place for place, offset in offsets.items() if offset is None]
        ends = await self._offsets_at(after, LATEST) if after and when != LATEST else {}
        return {
            place: ends.get(place, 0) if offset is None else offset
            for place, offset in offsets.items()
        }


class Member:
    """A member of a group, with librdkafka.

    :raises BadUsage: a setting cannot be used
    """

    def __init__(self, options: Namespace, config: Mapping[str, Any], has_headers: bool) -> None:
        self.total: int | None = None
        self._options = options
        self._has_headers = has_headers
        self._messages: dict[tuple[str, int, int], Any] = {}
        self._problem: Failure | None = None
        try:
            self._consumer = Consumer(
                {
                    **config,
                    "group.id": options.group,
                    "enable.auto.commit": True,
                    "enable.auto.offset.store": False,
                    "isolation.level": options.isolation_level,
                    "auto.offset.reset": "earliest" if options.from_beginning else "latest",
                }
            )
        except KafkaException as error:
            raise BadUsage(one_line(error)) from error

    def begin(self) -> None:
        """Join the group."""
        topic = self._options.topic
        self._consumer.subscribe([topic if topic is not None else f"^({self._options.include})$"])

    def next(self, max_records: int, wait_s: float) -> list[Delivered]:
        """Return the next records, none if none came within ``wait_s``.

        :raises Failure: reading failed
        """
        if self._problem is not None:
            raise self._problem
        # consume() waits until it has all records that it may return: wait for the first only.
        first = self._consumer.poll(wait_s)
        if first is None:
            return []
        more = self._consumer.consume(max_records - 1, 0) if max_records > 1 else []
        records: list[Delivered] = []
        for message in (first, *more):
            try:
                record = self._delivered(message)
            except Failure as failure:
                if not records:
                    raise
                self._problem = failure
                break
            if record is not None:
                records.append(record)
        return records

    def _delivered(self, message: Any) -> Delivered | None:
        """Return a record, None for what is none.

        :raises Failure: reading failed, or the record cannot be formatted
        """
        topic, partition, error = message.topic(), message.partition(), message.error()
        if error is not None:
            if error.code() in _TRANSIENT:
                return None
            named = topic or self._options.topic or self._options.include
            place = named if topic is None else f"{topic}-{partition}"
            why = reason(error, named, "READ", self._options.group)
            raise Failure(f"reading {place} as group '{self._options.group}': {why}")
        try:
            headers = message_headers(message) if self._has_headers else ()
        except UnreadableHeaders as unreadable:
            if self._options.skip_message_on_error:
                self._store(message)
                return None
            raise Failure(
                f"cannot format {topic}-{partition} offset {message.offset()}: {unreadable}"
            ) from unreadable
        kind, at_ms = message.timestamp()
        record = Delivered(
            topic,
            partition,
            message.offset(),
            _TIMESTAMP_TYPES.get(kind, "NoTimestampType"),
            at_ms if kind in _TIMESTAMP_TYPES else -1,
            None,
            headers,
            message.key(),
            message.value(),
        )
        self._messages[topic, partition, record.offset] = message
        return record

    def printed(self, records: Sequence[Delivered]) -> None:
        """Remember the offsets of records to commit."""
        for record in sorted(records, key=lambda record: record.offset):
            self._store(self._messages[record.topic, record.partition, record.offset])
        self._messages.clear()

    def _store(self, message: Any) -> None:
        """Remember the offset of a record, unless its partition was revoked meanwhile: the
        partition's next member prints the record again.
        """
        try:
            self._consumer.store_offsets(message=message)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise

    def commit(self) -> None:
        """Commit what was printed.

        :raises Failure: the broker refuses or does not answer
        """
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                topic = self._options.topic or self._options.include
                why = reason(error, topic, "READ", self._options.group)
                raise Failure(f"committing as group '{self._options.group}': {why}") from error

    def close(self) -> None:
        """Leave the group."""
        # librdkafka may hang if it is closed while an assignment arrives (its issue 4884).
        self._consumer.unsubscribe()
        for _ in range(_POLLS_TO_LEAVE):
            self._consumer.poll(0.01)
            if not self._consumer.assignment():
                break
        self._consumer.close()


class Reader:
    """One run of the command.

    :param output: returns what is printed of a record
    :param stopped_by: gets the numbers of the signals that end the run
    :ivar processed: number of records printed
    """

    def __init__(
        self,
        options: Namespace,
        output: Callable[[Delivered], bytes],
        source: Partitions | Member,
        stopped_by: Sequence[int],
    ) -> None:
        self.processed = 0
        self._options = options
        self._output = output
        self._source = source
        self._stopped_by = stopped_by

    def run(self) -> int:
        """Print records until the end.

        :returns: the exit status
        :raises Failure: a record cannot be formatted, or reading failed
        :raises ClientError: likewise
        """
        if self._options.max_messages != 0:
            self._source.begin()
            total = self._options.max_messages or self._source.total
            is_hidden = sys.stdout.isatty() or total is None
            with nullcontext() if is_hidden else Bar("consuming", total or 1) as bar:
                self._consume(bar)
        return _ENDED_BY_SIGNAL + self._stopped_by[0] if self._stopped_by else 0

    def _consume(self, bar: Bar | None) -> None:
        options = self._options
        last_s = time.monotonic()
        while not self._stopped_by:
            most = _RECORDS_AT_ONCE
            if options.max_messages is not None:
                most = min(most, options.max_messages - self.processed)
                if most <= 0:
                    return
            wait_s = _WAIT_S
            if options.timeout_ms is not None:
                left_s = options.timeout_ms / 1000 - (time.monotonic() - last_s)
                if left_s <= 0:
                    return
                wait_s = min(wait_s, left_s)
            records = self._source.next(most, wait_s)
            if records is None:
                return
            if records:
                self._show(records)
                last_s = time.monotonic()
                if bar is not None:
                    bar.update(self.processed, "")

    def _show(self, records: Sequence[Delivered]) -> None:
        """Print records, then remember their offsets to commit.

        :raises Failure: a record cannot be formatted
        """
        lines: list[bytes] = []
        passed: list[Delivered] = []
        problem: Failure | None = None
        for record in records:
            try:
                lines.append(self._output(record))
            except Undecodable as error:
                if not self._options.skip_message_on_error:
                    place = f"{record.topic}-{record.partition}"
                    problem = Failure(f"cannot format {place} offset {record.offset}: {error}")
                    break
            passed.append(record)
        write_out(b"".join(lines))
        self.processed += len(lines)
        self._source.printed(passed)
        if problem is not None:
            raise problem
