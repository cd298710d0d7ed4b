"""``headrace consume``: print the records of topics, from an offset or a time, to an exact end."""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from headrace.cli.client_options import call_options, on_cluster, share_config
from headrace.cli.clients import Cluster, TopicMetadata, errors
from headrace.cli.clients import offsets as positions
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.nouns import command
from headrace.cli.options import arg, pattern, section, switch
from headrace.cli.tables import tell
from headrace.patterns import matches, occurs
from headrace.positions import EARLIEST, LATEST, Position
from headrace.protocol.partitions import TopicPartition

from .output import OUTPUT_OPTIONS, RecordOutput, record_format

if TYPE_CHECKING:
    from headrace.client import Record
    from headrace.client.partition_reader import PartitionReader


_RECORDS_AT_ONCE = 500
_WAIT_S = 0.2
_MAX_EMPTY_READS = 150
"""About half a minute without records, and longer if brokers do not answer at all."""
_HINT_S = 2.0
_HINT = (
    "no record yet: a new share group begins with records from now on; with --from earliest it "
    "begins with the oldest"
)
_ENDED_BY_SIGNAL = 128
_NOT_WITH = {
    "share_group": ("partition", "end", "tail", "exit", "grep", "read_committed"),
    "tail": ("start", "end", "max"),
}
"""Option → what it excludes."""


def check(options: Namespace) -> None:
    """Check the options together.

    :raises BadUsage: they contradict each other
    :raises ArgumentTypeError: a topic is a malformed expression
    """
    for name, others in _NOT_WITH.items():
        for other in others:
            if all(getattr(options, option) not in (None, False) for option in (name, other)):
                raise BadUsage(f"{_option(name)} and {_option(other)} exclude each other")
    is_text = options.output == "text"
    if options.parse_json if is_text else options.raw or options.format is not None:
        raise BadUsage("--format and --raw are for text, --parse-json is for -o json and jsonl")
    if "" in options.topics:
        raise BadUsage("the name of the topic is empty")
    if options.share_group is None:
        if options.outcome is not None:
            raise BadUsage("--outcome is for --share-group")
        for topic in options.topics:
            pattern(topic[1:] if topic.startswith("^") else "")
        return
    if not options.share_group:
        raise BadUsage("--share-group takes the id of a group, which is not empty")
    start = options.start
    if start not in (None, EARLIEST, LATEST) and start.time_ms is None:
        raise BadUsage("--from takes earliest, latest or a time with --share-group")
    if any(topic.startswith("^") for topic in options.topics):
        raise BadUsage("--share-group takes names of topics")


def _option(name: str) -> str:
    return "--" + {"start": "from", "end": "to"}.get(name, name.replace("_", "-"))


@command(
    "print the records of topics",
    arg("topics", "TOPIC", "a topic, or ^REGEX for all topics whose whole name matches", nargs="+"),
    section(
        "which records",
        arg("-p --partition", "N", "may be repeated", type=int, action="append"),
        arg(
            "--from",
            "POSITION",
            "earliest (default), latest, an offset, -N: the last N of each partition, or a time",
            dest="start",
        ),
        arg(
            "--to",
            "POSITION",
            "end before an offset or a time, or at the present end: latest",
            dest="end",
        ),
        switch("-e --exit", "end with the last record that is there now"),
        arg("--tail", "N", "the newest N records by time"),
        arg("--max", "N", "end after N records"),
        arg("--idle", "DURATION", "end after a time without a record"),
        arg("--grep", "REGEX", "records whose key or value has a match, in any case"),
        switch("--read-committed", "without records of open and aborted transactions"),
    ),
    section(
        "share groups (default: none)",
        arg("--share-group", "GROUP", "be a member of this share group"),
        arg(
            "--outcome",
            choices=("accept", "release", "reject"),
            help="the outcome of each record of a share group (default: accept)",
        ),
    ),
    section("output", *OUTPUT_OPTIONS),
    call_options,
    examples="headrace consume orders --exit                      # all records, oldest first\n"
    "headrace consume orders --tail 5\n"
    "headrace consume orders --partition 3 --from 4711 -f '%o %k %s\\n'\n"
    "headrace consume orders --from -1h --to now --grep refused -o jsonl\n"
    "headrace consume orders --share-group packers --outcome release --max 10",
)
def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0; 130 or 143 when ended by SIGINT or SIGTERM
    :raises Failure: reading failed
    :raises ClientError: likewise, no broker answers, or the topic is missing
    """
    import asyncio  # not for a help

    check(options)
    if options.tail is not None:
        options.start, options.exit = Position(-options.tail), True
    output = RecordOutput(
        options.output,
        options.format or record_format(r"%s\n"),
        parse=options.parse_json,
        for_terminal=sys.stdout.isatty() and not options.raw,
    )
    reader = Reader(options, output)
    try:
        on_cluster(options, reader.run)
    except asyncio.CancelledError:
        pass  # by a signal: the broker had not answered yet
    finally:
        if reader.is_reading:
            tell("1 record" if reader.count == 1 else f"{reader.count} records")
    return reader.status


@dataclass(slots=True)
class Reader:
    """One run of the command.

    :ivar count: number of records printed
    :ivar status: the exit status
    :ivar is_reading: whether the broker has answered
    """

    options: Namespace
    output: RecordOutput
    count: int = 0
    status: int = 0
    is_reading: bool = False

    async def run(self, cluster: Cluster) -> None:
        """Print records until the end, or until a signal.

        :raises Failure: reading failed
        :raises ClientError: likewise
        :raises BrokenPipeError: the reader of the output has ended
        """
        import asyncio

        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop(number: int) -> None:
            """End the run after the records in hand."""
            self.status = _ENDED_BY_SIGNAL + number
            if task is not None and not self.is_reading:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        await cluster.connection()  # a share group's client would wait for a broker
        options = self.options
        if options.share_group is None:
            reader = await open_reader(cluster, options)
            await self._copy(reader.read)
            return
        from headrace.client import OutcomesFailed, ShareConsumer

        start: Any = options.start and ("latest" if options.start == LATEST else "earliest")
        if start is not None and options.start.time_ms is not None:
            start = max(0.0, time.time() - options.start.time_ms / 1000)
        conf = share_config(options, options.share_group)
        async with ShareConsumer(conf, options.topics, start=start) as queue:

            async def end(records: list[Record]) -> None:
                try:
                    await getattr(queue, options.outcome or "accept")(records)
                except OutcomesFailed as error:
                    tell(f"{error}: they will be delivered again")

            await self._copy(queue.poll, end)

    async def _copy(
        self,
        read: Callable[[int, float], Awaitable[list[Record] | None]],
        end: Callable[[list[Record]], Awaitable[None]] | None = None,
    ) -> None:
        """Print the records that are read.

        :param read: returns at most a number of records, waits at most some seconds for them, and
            returns None after the last one
        :param end: is called with records after they were printed
        """
        options, self.is_reading = self.options, True
        newest: list[Record] = []
        started_s = last_s = time.monotonic()
        empty_reads = 0
        most: int = options.max or sys.maxsize
        while not self.status and self.count < most:
            records = await read(min(_RECORDS_AT_ONCE, most - self.count), _WAIT_S)
            if records is None:
                break
            chosen = list(filter(self._selects, records))
            if options.tail is not None:
                newest = nlargest(
                    options.tail, [*newest, *chosen], key=attrgetter("timestamp_ms", "offset")
                )
            else:
                self._print(chosen)
            if records:
                last_s, empty_reads = time.monotonic(), 0
                if end is not None:
                    await end(records)
                continue
            self.output.check_reader()
            empty_reads += 1
            idle_s = time.monotonic() - last_s
            if options.idle is not None and idle_s >= options.idle / 1000:
                break
            # Up to an end there are records, and the reader tries again without end.
            if (options.exit or options.end) and empty_reads > _MAX_EMPTY_READS:
                raise Failure("no broker sends the records up to the end")
            if end and options.start is None and last_s == started_s and idle_s > _HINT_S:
                tell(_HINT)
                started_s = 0.0  # once
        self._print(newest[::-1])
        self.output.close()

    def _print(self, records: Sequence[Record]) -> None:
        self.output.write(records)
        self.count += len(records)

    def _selects(self, record: Record) -> bool:
        grep = self.options.grep
        return grep is None or any(
            data is not None and occurs(grep, data.decode(errors="replace"))
            for data in (record.key, record.value)
        )


# Partitions ---------------------------------------------------------------------------------------


async def open_reader(cluster: Cluster, options: Namespace) -> PartitionReader:
    """Return a reader of the records that the options choose.

    :raises Failure: no topic matches
    :raises ClientError: a broker refuses
    """
    from headrace.client.partition_reader import PartitionReader

    level = int(options.read_committed)
    partitions = [
        partition
        for name in options.topics
        for partition in await _partitions(cluster, name, options.partition)
    ]

    async def offsets(position: Position) -> dict[TopicPartition, int]:
        return errors.raised(
            await positions.offsets_of_positions(
                cluster, dict.fromkeys(partitions, position), isolation_level=level
            )
        )

    starts, ends = await offsets(options.start or EARLIEST), {}
    if options.exit or options.end is not None:
        ends = await offsets(options.end or LATEST)
        starts = {key: start for key, start in starts.items() if start < ends[key]}
    return PartitionReader(cluster, starts, ends, level)


def check_partition(number: int, topic: TopicMetadata) -> None:
    """Check the number of a partition.

    :raises BadUsage: the topic has no such partition
    """
    count = len(topic.leaders)
    if not 0 <= number < count:
        raise BadUsage(f"topic '{topic.name}' has no partition {number}: it has {count}")


async def _partitions(
    cluster: Cluster, name: str, numbers: Sequence[int] | None
) -> list[TopicPartition]:
    """Return the partitions of a topic, or of those that match an expression.

    :param numbers: only these, which all of the topics must have; None for all
    """
    if name.startswith("^"):
        existing = await cluster.all_topics()
        topics = {
            existing_name: topic
            for existing_name, topic in existing.items()
            if matches(name[1:], existing_name)
        }
        if not topics:
            raise Failure(f"no topic matches '{name}'")
    else:
        topics = await cluster.topics([name])
    for topic in topics.values():
        for number in numbers or ():
            check_partition(number, topic)
    return [
        (topic.name, number) for topic in topics.values() for number in numbers or topic.leaders
    ]
