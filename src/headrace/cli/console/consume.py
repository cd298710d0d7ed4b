"""``headrace consume``: print the records of topics, from an offset or a time, to an exact end."""

from __future__ import annotations

import re
import signal
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from heapq import nlargest
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.client_options import client_config, must_answer
from headrace.cli.errors import BadUsage, one_line_error
from headrace.cli.librdkafka import LIBRDKAFKA_OPTIONS
from headrace.cli.nouns import Lazy, arg, command, section, switch
from headrace.cli.options import pattern
from headrace.cli.output import signals_handled
from headrace.patterns import occurs
from headrace.positions import EARLIEST, LATEST, Position, position
from headrace.times import duration_ms

from .output import OUTPUT_OPTIONS, RecordOutput
from .value_files import ValueFiles

if TYPE_CHECKING:
    from headrace.client.records import Record

    from . import sources
else:
    sources = Lazy("headrace.cli.console.sources")

_RECORDS_AT_ONCE = 500
_WAIT_S = 0.2
_ENDED_BY_SIGNAL = 128
_NOT_WITH = {
    "group": ("share_group", "partition", "end", "tail"),
    "share_group": ("partition", "end", "tail", "exit", "grep", "read_committed"),
    "tail": ("start", "end", "max"),
}
"""Option → what it excludes."""


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ArgumentTypeError(f"{text!r} is not a number of records")
    return int(text)


def check(options: Namespace) -> None:
    """Check the options together.

    :raises BadUsage: they contradict each other
    """
    is_set = {name: value not in (None, False) for name, value in vars(options).items()}
    for name, others in _NOT_WITH.items():
        for other in others:
            if is_set[name] and is_set[other]:
                raise BadUsage(f"{_option(name)} and {_option(other)} exclude each other")
    if "" in options.topics:
        raise BadUsage("the name of the topic is empty")
    starts = (None, EARLIEST, LATEST)
    for name in ("group", "share_group"):
        if getattr(options, name) == "":
            raise BadUsage(f"{_option(name)} takes the id of a group, which is not empty")
        is_time = name == "share_group" and options.start and options.start.time_ms is not None
        if is_set[name] and options.start not in starts and not is_time:
            times = " or a time" if name == "share_group" else ""
            raise BadUsage(f"--from takes earliest, latest{times} with {_option(name)}")
    if is_set["outcome"] and not is_set["share_group"]:
        raise BadUsage("--outcome is for --share-group")
    for topic in options.topics:
        if topic.startswith("^"):
            if is_set["share_group"]:
                raise BadUsage("--share-group takes names of topics")
            try:
                pattern(topic[1:])
            except ArgumentTypeError as error:
                raise BadUsage(str(error)) from None


def _option(name: str) -> str:
    return "--" + {"start": "from", "end": "to"}.get(name, name.replace("_", "-"))


@command(
    "print the records of topics",
    arg(
        "topics",
        nargs="+",
        metavar="TOPIC",
        help="a topic, or ^REGEX for all topics whose whole name matches",
    ),
    section(
        "which records",
        arg("-p", "--partition", type=int, action="append", metavar="N", help="may be repeated"),
        arg(
            "--from",
            dest="start",
            type=position,
            metavar="POSITION",
            help="earliest (default), latest, an offset, -N: the last N of each partition, or a "
            "time",
        ),
        arg(
            "--to",
            dest="end",
            type=position,
            metavar="POSITION",
            help="end before an offset or a time, or at the present end: latest",
        ),
        arg("-e", "--exit", action="store_true", help="end with the last record that is there now"),
        arg("--tail", type=_count, metavar="N", help="the newest N records by time"),
        arg("--max", type=_count, metavar="N", help="end after N records"),
        arg(
            "--idle", type=duration_ms, metavar="DURATION", help="end after a time without a record"
        ),
        arg(
            "--grep",
            type=pattern,
            metavar="REGEX",
            help="records whose key or value has a match, in any case",
        ),
        switch("--read-committed", "without records of open and aborted transactions"),
    ),
    section(
        "groups (default: none)",
        arg(
            "-G", "--group", help="be a member of this consumer group, and commit what was printed"
        ),
        arg("--share-group", metavar="GROUP", help="be a member of this share group"),
        arg(
            "--outcome",
            choices=("accept", "release", "reject"),
            help="the outcome of each record of a share group (default: accept)",
        ),
    ),
    section("output", *OUTPUT_OPTIONS),
    arg(
        "--to-directory",
        type=Path,
        metavar="DIR",
        help="write each value to the file TOPIC-PARTITION-OFFSET of this directory",
    ),
    *LIBRDKAFKA_OPTIONS,
    examples="headrace consume orders --exit                      # all records, oldest first\n"
    "headrace consume orders --tail 5\n"
    "headrace consume orders --partition 3 --from 4711 -f '%o %k %s\\n'\n"
    "headrace consume orders --from -1h --to now --grep refused -o jsonl\n"
    "headrace consume orders --group audit --exit > orders.txt\n"
    "headrace consume orders --share-group packers --outcome release --max 10\n"
    "headrace consume scans --exit --to-directory scans/",
)
def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0; 130 or 143 when ended by SIGINT or SIGTERM
    :raises Failure: reading failed
    :raises ClientError: likewise, no broker answers, or the topic is missing
    """
    check(options)
    if options.tail is not None:
        options.start, options.exit = Position(-options.tail), True
    config = client_config(options)
    if options.to_directory is None:
        output: RecordOutput | ValueFiles = RecordOutput(
            options.output,
            options.format,
            parse=options.parse_json,
            for_terminal=sys.stdout.isatty() and not options.raw,
        )
    else:
        try:
            output = ValueFiles(options.to_directory)
        except OSError as error:
            raise BadUsage(f"cannot write to {one_line_error(error)}") from error
    reader = Reader(options, output)
    try:
        with signals_handled(reader.stop, signal.SIGINT, signal.SIGTERM):
            source = sources.source(options, config)
            must_answer(config)
            reader.run(source)
    except KeyboardInterrupt:
        pass  # the broker had not answered yet
    finally:
        if reader.is_reading:
            print("1 record" if reader.count == 1 else f"{reader.count} records", file=sys.stderr)
    return reader.status


class Reader:
    """One run of the command.

    :ivar count: number of records printed
    :ivar status: the exit status
    :ivar is_reading: whether the broker has answered
    """

    def __init__(self, options: Namespace, output: RecordOutput | ValueFiles) -> None:
        self.count = 0
        self.status = 0
        self._options = options
        self._output = output
        self.is_reading = False

    def stop(self, number: int, _: object) -> None:
        """End the run after the records in hand; a signal handler."""
        self.status = _ENDED_BY_SIGNAL + number
        if not self.is_reading:
            raise KeyboardInterrupt

    def run(self, source: sources.Source) -> None:
        """Print records until the end.

        :raises Failure: reading failed
        :raises ClientError: likewise
        """
        tail = self._options.tail
        newest: list[Record] = []
        try:
            for records in self._chunks(source):
                chosen = [record for record in records if self._selects(record)]
                if tail is None:
                    self._print(chosen)
                    source.done(records)
                else:
                    newest = nlargest(
                        tail, [*newest, *chosen], key=attrgetter("timestamp_ms", "offset")
                    )
            self._print(newest[::-1])
            self._output.close()
        finally:
            source.close()

    def _print(self, records: Sequence[Record]) -> None:
        self._output.write(records)
        self.count += len(records)

    def _chunks(self, source: sources.Source) -> Iterator[list[Record]]:
        options = self._options
        if options.max == 0:
            return
        source.open()
        self.is_reading = True
        last_s = time.monotonic()
        while not self.status:
            most = _RECORDS_AT_ONCE
            if options.max is not None and (most := min(most, options.max - self.count)) <= 0:
                break
            records = source.read(most, _WAIT_S)
            if records is None:
                break
            if records:
                yield records
                last_s = time.monotonic()
            elif options.idle is not None and time.monotonic() - last_s >= options.idle / 1000:
                break
        source.finish()

    def _selects(self, record: Record) -> bool:
        grep = self._options.grep
        return grep is None or any(
            data is not None and occurs(grep, data.decode(errors="replace"))
            for data in (record.key, record.value)
        )
