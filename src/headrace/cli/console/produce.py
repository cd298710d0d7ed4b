"""``headrace produce``: produce lines, JSON objects or whole files to a topic.

The options are those of Kafka's ``kafka-console-producer``, and more.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import FrameType
from typing import IO, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.cli.errors import BadUsage, Failure, one_line_error
from headrace.cli.groups.options import timestamp_ms
from headrace.cli.librdkafka import (
    librdkafka_options,
    one_line,
    partitions,
    producer_config,
    reason,
)
from headrace.cli.options import flag, repeated_option
from headrace.cli.perf.report import Bar

from .formatting import setting_as_is
from .record_input import Headers, JsonReader, LineReader, MalformedLine, NewRecord

_DELIVERY_TIMEOUT_MS = 60_000
_CHECK_EVERY = 64
_WAIT_S = 0.1
_EPILOG = """\
examples:
  headrace produce orders < lines.txt
  headrace produce orders lines-1.txt lines-2.txt --reader-property parse.key=true
  headrace produce orders --json < records.json
  headrace produce scans --whole-files images/*.png --header origin=scanner
  headrace consume orders --from-beginning --to-end --json | headrace produce copy --json
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Produce lines of stdin or of files to a topic, a record for each."
    parser.usage = "%(prog)s TOPIC [FILE …] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument(
        "words", nargs="*", metavar="TOPIC FILE", help="the topic, and files to read, not stdin"
    )
    parser.add_argument("--topic", help="the topic, as in Kafka's tool")
    form = parser.add_mutually_exclusive_group()
    flag(form, "--json", "lines are JSON objects, as consume --json prints them")
    flag(form, "--whole-files", "each file is one record")
    parser.add_argument(
        "--reader-property",
        "--property",
        action="append",
        default=[],
        type=setting_as_is,
        metavar="NAME=VALUE",
        help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, null.marker, ignore.error; may be repeated",
    )
    parser.add_argument("--key", metavar="TEXT", help="the key of all records")
    repeated_option(
        parser, "--header", "NAME=VALUE", "a header of all records; may be repeated", setting_as_is
    )
    parser.add_argument("--partition", type=int, metavar="N", help="the partition of all records")
    flag(parser, "--keep-partitions", "with --json: use the field partition")
    parser.add_argument(
        "--timestamp",
        type=timestamp_ms,
        metavar="TIME",
        help="the timestamp of all records: ISO 8601, or milliseconds since the epoch",
    )
    parser.add_argument(
        "--compression-codec",
        nargs="?",
        const="gzip",
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="compression of batches (default: none; without a value: gzip)",
    )
    parser.add_argument(
        "--request-required-acks",
        choices=("-1", "0", "1", "all"),
        default="-1",
        help="acknowledgements that a record needs (default: -1, all)",
    )
    flag(parser, "--sync", "wait for each record before sending the next")
    librdkafka_options(parser, "--producer-property", "--producer.config")


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0, or 130 after Ctrl-C
    :raises Failure: no broker answers, the topic is missing, a line is malformed, or a record was
        refused
    """
    check(options)
    given = producer_config(options)
    parse = _parser(options)
    with ExitStack() as opened:
        sources = _sources(options, opened)
        config = {
            "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
            "enable.idempotence": options.request_required_acks in ("-1", "all"),
            "compression.type": options.compression_codec,
            "acks": options.request_required_acks,
            **given,
        }
        count = partitions(given, options.topic)
        if options.partition is not None and not 0 <= options.partition < count:
            raise BadUsage(
                f"topic '{options.topic}' has no partition {options.partition}: it has {count}"
            )
        try:
            sender = Sender(options, Producer(config))
        except KafkaException as error:
            raise BadUsage(one_line(error)) from error
        return sender.run(sources, parse)


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.topic`` and ``options.files``.

    :raises BadUsage: they contradict each other
    """
    words = list(options.words)
    if options.topic is None:
        if not words:
            raise BadUsage("name a topic: headrace produce TOPIC")
        options.topic = words.pop(0)
    options.files = [Path(word) for word in words]
    if options.whole_files and not options.files:
        raise BadUsage("--whole-files takes files")
    if options.reader_property and (options.json or options.whole_files):
        raise BadUsage("--reader-property is for lines, without --json and --whole-files")
    if options.timestamp == 0:
        raise BadUsage("--timestamp 0 cannot be written: librdkafka takes it for the present time")
    if options.keep_partitions and not options.json:
        raise BadUsage("--keep-partitions is for --json")


def _parser(options: Namespace) -> Callable[[bytes], NewRecord | None]:
    if options.whole_files:
        return lambda data: NewRecord(None, data, [])
    if options.json:
        return JsonReader(keep_partitions=options.keep_partitions).record
    return LineReader(dict(options.reader_property)).record


class Source:
    """An input: stdin or a file.

    :ivar name: for error texts
    :ivar is_interactive: True for a terminal
    """

    def __init__(self, name: str, file: IO[bytes], *, whole: bool) -> None:
        self.name = name
        self._file = file
        self._whole = whole
        self.is_interactive = file.isatty()

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Yield each line without its end, or the whole content, with the number of bytes read."""
        if self._whole:
            data = self._file.read()
            yield data, len(data)
            return
        while line := self._file.readline():
            yield line.removesuffix(b"\n").removesuffix(b"\r"), len(line)


def _sources(options: Namespace, opened: ExitStack) -> list[Source]:
    """Open all files before the first record is sent.

    :raises BadUsage: one cannot be read
    """
    if not options.files:
        return [Source("stdin", sys.stdin.buffer, whole=False)]
    sources = []
    for path in options.files:
        try:
            file = opened.enter_context(path.open("rb"))
        except OSError as error:
            raise BadUsage(f"cannot read {one_line_error(error)}") from error
        sources.append(Source(str(path), file, whole=options.whole_files))
    return sources


class Sender:
    """One run of the command.

    :ivar sent: number of records passed to librdkafka
    :ivar acknowledged: number of records that the broker has stored
    """

    def __init__(self, options: Namespace, producer: Any) -> None:
        self._options = options
        self._producer = producer
        self._key = None if options.key is None else options.key.encode()
        self._headers: Headers = [(name, value.encode()) for name, value in options.header]
        self.sent = 0
        self.acknowledged = 0
        self._refused: KafkaError | None = None
        self._interrupted = False
        self._is_reading = False

    def run(self, sources: list[Source], parse: Callable[[bytes], NewRecord | None]) -> int:
        """Send all records, and wait until they are acknowledged.

        :returns: the exit status
        :raises Failure: a line is malformed, or a record was refused
        """
        # Without a total there is no bar. A bar would be drawn into the prompt of a terminal.
        is_interactive = any(source.is_interactive for source in sources)
        total = 0 if is_interactive else sum(p.stat().st_size for p in self._options.files)
        before = signal.signal(signal.SIGINT, self._interrupt)
        problem: Failure | None = None
        try:
            what = f"producing to {self._options.topic}"
            with Bar(what, total) if total else nullcontext() as bar:
                try:
                    self._send_all(sources, parse, bar)
                except KeyboardInterrupt:
                    self._interrupted = True
                except Failure as failure:
                    problem = failure
                self._flush()
        finally:
            signal.signal(signal.SIGINT, before)
        if self._refused is not None:
            problem = problem or self._refusal()
        done = self.acknowledged
        count = "1 record was acknowledged" if done == 1 else f"{done} records were acknowledged"
        if problem is not None:
            raise Failure(f"{problem}; {count}")
        if self.acknowledged < self.sent and self._options.request_required_acks != "0":
            lost = self.sent - self.acknowledged
            raise Failure(f"{lost} records were not acknowledged, {count}")
        if self._interrupted:
            print(f"headrace produce: interrupted; {count}", file=sys.stderr)
            return 130
        print(f"Produced a total of {done} messages", file=sys.stderr)
        return 0

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # An exception in a callback of librdkafka would be lost.
        self._interrupted = True
        if self._is_reading:
            raise KeyboardInterrupt

    def _send_all(
        self, sources: list[Source], parse: Callable[[bytes], NewRecord | None], bar: Bar | None
    ) -> None:
        done = 0
        for source in sources:
            pieces = source.pieces()
            number = 0
            while (piece := self._next(source, pieces)) is not None and not self._interrupted:
                data, size = piece
                number += 1
                done += size
                try:
                    record = parse(data)
                except MalformedLine as error:
                    raise Failure(f"line {number} of {source.name}: {error}") from error
                if record is None:
                    continue
                self._send(record, f"line {number} of {source.name}")
                if self._options.sync or source.is_interactive:
                    self._producer.flush()
                elif self.sent % _CHECK_EVERY == 0:
                    self._producer.poll(0)
                    if bar is not None:
                        bar.update(done, f"bytes, {self.sent:,} records")
                self._raise_refused()

    def _next(
        self, source: Source, pieces: Iterator[tuple[bytes, int]]
    ) -> tuple[bytes, int] | None:
        if source.is_interactive:
            print(">", end="", file=sys.stderr, flush=True)
        self._is_reading = True
        try:
            return next(pieces, None)
        except OSError as error:
            raise Failure(f"cannot read {source.name}: {one_line_error(error)}") from error
        finally:
            self._is_reading = False

    def _send(self, record: NewRecord, where: str) -> None:
        options = self._options
        more: dict[str, Any] = {}
        if (partition := _first(options.partition, record.partition)) is not None:
            more["partition"] = partition
        if (timestamp := _first(options.timestamp, record.timestamp_ms)) is not None:
            more["timestamp"] = timestamp
        while not self._interrupted:
            try:
                self._producer.produce(
                    options.topic,
                    record.value,
                    record.key if self._key is None else self._key,
                    headers=[*record.headers, *self._headers],
                    on_delivery=self._delivered,
                    **more,
                )
                self.sent += 1
                return
            except BufferError:  # the queue is full: wait for deliveries
                self._producer.poll(_WAIT_S)
                self._raise_refused()
            except KafkaException as error:
                raise Failure(f"{where}: {one_line(error)}") from error

    def _flush(self) -> None:
        if self._refused is not None:
            self._producer.purge()
        while self._producer.flush(_WAIT_S):
            if self._refused is not None:
                self._producer.purge()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self._refused is None and error.code() != KafkaError._PURGE_QUEUE:
            self._refused = error

    def _refusal(self) -> Failure:
        assert self._refused is not None
        why = reason(self._refused, self._options.topic, "WRITE", "")
        return Failure(f"a record for topic '{self._options.topic}' was refused: {why}")

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._refusal()


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
