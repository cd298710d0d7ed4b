"""``headrace consume``: print the records of topics, from an offset or a time, to an exact end.

The options and the output are those of Kafka's ``kafka-console-consumer``, and more.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headrace.cli.client_options import must_answer
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
from headrace.client.message_headers import UnreadableHeaders, message_headers

from .formatting import formatter_options, message_formatter, write_out
from .message_formatter import Delivered, MessageFormatter, Undecodable

_RECORDS_AT_ONCE = 500
_WAIT_S = 0.2
_CALL_TIMEOUT_S = 30.0
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
_OFFSETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
_EPILOG = """\
examples:
  headrace consume orders --from-beginning --max-messages 10
  headrace consume orders --partition 3 --offset 4711 --formatter-property print.key=true
  headrace consume orders --from-time 2026-11-20T08:00:00Z --to-time 2026-11-20T09:00:00Z --json
  headrace consume orders --group audit --from-beginning --to-end > orders.txt
  headrace consume scans --from-beginning --to-end --to-directory scans/
"""

Place = tuple[str, int]
"""(topic, partition)"""


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
    if options.to_directory is not None:
        try:
            options.to_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadUsage(f"cannot write to {one_line_error(error)}") from error
    base = librdkafka_config(options)
    count = 0
    if options.topic is None:
        must_answer(base)
    else:
        count = partitions(base, options.topic)
    for number in options.partition or ():
        if not 0 <= number < count:
            raise BadUsage(f"topic '{options.topic}' has no partition {number}: it has {count}")
    reset = "earliest" if options.from_beginning else "latest"
    config = {
        **base,
        "group.id": options.group or "headrace-consume",
        "enable.auto.commit": options.group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": options.isolation_level,
        "auto.offset.reset": "error" if options.group is None else reset,
    }
    try:
        reader = Reader(options, formatter, Consumer(config))
    except KafkaException as error:
        raise BadUsage(one_line(error)) from error
    before = {
        number: signal.signal(number, reader.stop_on) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        status = reader.run(count)
        reader.commit()
        return status
    except KafkaException as error:
        why = reason(error, options.topic or options.include, "READ", options.group or "")
        raise Failure(why) from error
    finally:
        reader.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        print(f"Processed a total of {reader.processed} messages", file=sys.stderr)


class Reader:
    """One run of the command.

    :ivar processed: number of records printed
    """

    def __init__(self, options: Namespace, formatter: MessageFormatter, consumer: Any) -> None:
        self.processed = 0
        self._options = options
        self._line: Callable[[Delivered], bytes] = (
            formatter.json_line if options.json else formatter.line
        )
        self._needs_headers = options.json or formatter.shows_headers
        self._consumer = consumer
        self._stopped_by = 0
        self._ends: dict[Place, int] = {}
        """The exclusive ends of the partitions that are not read to their ends yet; only with
        ``--to-end`` or ``--to-time``.
        """
        self._total = 0
        """The number of offsets up to the ends."""
        self._has_end = options.to_end or options.to_time is not None

    def stop_on(self, number: int, _: object) -> None:
        """End the run: the handler of a signal."""
        self._stopped_by = number

    def commit(self) -> None:
        """Commit what was printed, as a member of a group.

        :raises KafkaException: the broker refuses or does not answer
        """
        if self._options.group is None:
            return
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def close(self) -> None:
        """Leave the group, if there is one."""
        if self._options.group is not None:
            # librdkafka may hang if it is closed while an assignment arrives (its issue 4884).
            self._consumer.unsubscribe()
            for _ in range(_POLLS_TO_LEAVE):
                self._consumer.poll(0.01)
                if not self._consumer.assignment():
                    break
        self._consumer.close()

    def run(self, partition_count: int) -> int:
        """Print records until the end.

        :param partition_count: of the topic; 0 with ``--include``
        :returns: the exit status
        :raises Failure: a record cannot be formatted, or reading failed
        """
        options = self._options
        if options.group is not None:
            topics = [options.topic] if options.topic is not None else [f"^({options.include})$"]
            self._consumer.subscribe(topics)
        elif not self._assign(partition_count):
            return 0
        total = options.max_messages
        if total is None and self._has_end:
            total = self._total
        hidden = sys.stdout.isatty() or total is None
        with Bar("consuming", total or 1) if not hidden else _NoBar() as bar:
            self._consume(bar)
        return _ENDED_BY_SIGNAL + self._stopped_by if self._stopped_by else 0

    def _assign(self, partition_count: int) -> bool:
        """Assign the partitions, with their starts and ends.

        :returns: False if there is nothing to read
        :raises Failure: no topic matches
        """
        options = self._options
        places = [(options.topic, number) for number in options.partition or range(partition_count)]
        if options.include is not None:
            topics = self._consumer.list_topics(timeout=_CALL_TIMEOUT_S).topics
            wanted = {
                name: one for name, one in topics.items() if re.fullmatch(options.include, name)
            }
            if not wanted:
                raise Failure(f"no topic matches '{options.include}'")
            places = [(name, number) for name, one in wanted.items() for number in one.partitions]
        starts: Mapping[Place, int]
        if options.from_time is not None:
            starts = self._offsets_at(places, max(0, options.from_time))
        elif options.offset is not None:
            starts = dict.fromkeys(places, options.offset)
        else:
            starts = dict.fromkeys(
                places, OFFSET_BEGINNING if options.from_beginning else OFFSET_END
            )
        if self._has_end:
            when = OFFSET_END if options.to_time is None else max(0, options.to_time)
            self._ends = dict(self._offsets_at(places, when))
            firsts = self._offsets_at(places, OFFSET_BEGINNING)
            for place in places:
                left = self._ends[place] - max(starts[place], firsts[place])
                if starts[place] == OFFSET_END or left <= 0:
                    del self._ends[place]
                else:
                    self._total += left
            places = list(self._ends)
        if options.max_messages == 0:
            return False
        self._consumer.assign([TopicPartition(*place, starts[place]) for place in places])
        return bool(places)

    def _offsets_at(self, places: Sequence[Place], when: int) -> dict[Place, int]:
        """Look up offsets by time. A time after the last record gives the end of the log.

        :param when: in ms since the epoch; or ``OFFSET_BEGINNING`` or ``OFFSET_END``, which equal
            the special timestamps of ListOffsets
        :raises KafkaException: a broker refuses or does not answer
        """
        asked = [TopicPartition(*place, when) for place in places]
        found = self._consumer.offsets_for_times(asked, timeout=_CALL_TIMEOUT_S)
        offsets: dict[Place, int] = {}
        after: list[Place] = []
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
            offsets[one.topic, one.partition] = one.offset
            if one.offset < 0:
                after.append((one.topic, one.partition))
        if after and when != OFFSET_END:
            offsets.update(self._offsets_at(after, OFFSET_END))
        return offsets

    def _consume(self, bar: Any) -> None:
        options = self._options
        last_s = time.monotonic()
        while not self._stopped_by and not (self._has_end and not self._ends):
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
            # consume() waits until it has all records that it may return: wait for the first only.
            first = self._consumer.poll(wait_s)
            if first is None:
                continue
            if self._show([first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]):
                last_s = time.monotonic()
                bar.update(self.processed, "")

    def _show(self, messages: Sequence[Any]) -> bool:
        """Print messages, then remember their offsets to commit.

        :returns: True if there were records
        :raises Failure: a record cannot be formatted, or reading failed
        """
        lines: list[bytes] = []
        shown: list[Any] = []
        skipped: list[Any] = []
        problem: Failure | None = None
        for message in messages:
            place = (message.topic(), message.partition())
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    if self._ends.get(place, -1) >= 0 and message.offset() >= self._ends[place]:
                        del self._ends[place]
                    continue
                if message.error().code() in _TRANSIENT:
                    continue
                why = reason(message.error(), place[0], "READ", self._options.group or "")
                problem = Failure(f"reading {place[0]}-{place[1]}: {why}")
                break
            if self._has_end and message.offset() >= self._ends.get(place, 0):
                self._ends.pop(place, None)
                continue
            try:
                lines.append(self._written(message))
                shown.append(message)
            except (Undecodable, UnreadableHeaders) as error:
                if not self._options.skip_message_on_error:
                    problem = Failure(
                        f"cannot format {place[0]}-{place[1]} offset {message.offset()}: {error}"
                    )
                    break
                skipped.append(message)
            if self._has_end and message.offset() + 1 >= self._ends[place]:
                del self._ends[place]
        write_out(b"".join(lines))
        self.processed += len(shown)
        if self._options.group is not None:
            for message in sorted([*shown, *skipped], key=lambda one: int(one.offset())):
                self._store(message)
        if problem is not None:
            raise problem
        return bool(shown or skipped)

    def _store(self, message: Any) -> None:
        """Remember the offset of a record to commit, unless its partition was revoked meanwhile:
        the partition's next member prints the record again.
        """
        try:
            self._consumer.store_offsets(message=message)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise

    def _written(self, message: Any) -> bytes:
        """Return the line of a record; empty if its value went to a file instead."""
        if self._options.to_directory is not None:
            name = f"{message.topic()}-{message.partition()}-{message.offset()}"
            try:
                (self._options.to_directory / name).write_bytes(message.value() or b"")
            except OSError as error:
                raise Failure(f"cannot write {one_line_error(error)}") from error
            return b""
        kind, at_ms = message.timestamp()
        return self._line(
            Delivered(
                message.topic(),
                message.partition(),
                message.offset(),
                _TIMESTAMP_TYPES.get(kind, "NoTimestampType"),
                at_ms if kind in _TIMESTAMP_TYPES else -1,
                None,
                message_headers(message) if self._needs_headers else (),
                message.key(),
                message.value(),
            )
        )


class _NoBar:
    """The absence of a bar: records scroll on the terminal, or the end is unknown."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, done: int, rate: str) -> None:
        """Do nothing."""
