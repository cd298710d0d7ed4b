"""``headrace produce``: produce lines, JSON objects or whole files to a topic."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import IO, TYPE_CHECKING, Any

from headrace.cli.client_options import call_options, client_config, on_cluster
from headrace.cli.clients import Cluster, errors
from headrace.cli.errors import BadUsage, Failure, one_line_error
from headrace.cli.nouns import Lazy, command
from headrace.cli.options import arg, one_of, repeatable, switch
from headrace.cli.output import signals_handled
from headrace.cli.tables import tell

from .consume import check_partition
from .json_records import MalformedLine, NewRecord, read_record
from .output import unescaped

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka import KafkaError, Message
else:
    confluent_kafka = Lazy("confluent_kafka")

_DELIVERY_TIMEOUT_MS = 60_000
_WAIT_S = 0.1


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value.encode(errors="surrogateescape")


@command(
    "produce lines of stdin or of files to a topic, a record for each",
    arg("topic", "TOPIC"),
    arg(
        "--file",
        "FILE",
        "read files, not stdin",
        dest="files",
        nargs="+",
        action="extend",
        default=[],
    ),
    one_of(
        switch("--json", "lines are objects, as consume -o jsonl prints them"),
        switch("--whole", "each file is one record"),
        arg(
            "-K --key-separator",
            "TEXT",
            "what separates a line's key from its value, such as : or \\t",
            type=unescaped,
        ),
    ),
    arg("-k --key", "TEXT", "the key of all records"),
    repeatable(
        "-H --header", "NAME=VALUE", "a header of all records", dest="headers", type=_header
    ),
    arg("-p --partition", "N", "the partition of all records", type=int),
    switch("--keep-partitions", "with --json: use the field partition"),
    arg("--timestamp", "TIME", "the timestamp of all records"),
    arg(
        "-z --compression",
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="compression of batches (default: none)",
    ),
    call_options,
    repeatable(
        "-X",
        "NAME=VALUE",
        "a client config of librdkafka; overrides the file",
        dest="command_property",
    ),
    examples="headrace produce orders < lines.txt\n"
    "headrace produce orders --file lines-1.txt lines-2.txt --key-separator :\n"
    "headrace produce orders --json < records.jsonl\n"
    "headrace produce scans --file images/*.png --whole -H origin=scanner\n"
    "headrace consume orders --exit -o jsonl | headrace produce copy --json",
)
def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0, or 130 after Ctrl-C
    :raises Failure: no broker answers, the topic is missing, a line is malformed, or a record was
        refused
    """
    if not options.topic:
        raise BadUsage("the name of the topic is empty")
    if options.whole and not options.files:
        raise BadUsage("--whole takes --file")
    if options.key_separator == b"":
        raise BadUsage("--key-separator cannot be empty")
    if options.timestamp == 0:
        raise BadUsage("--timestamp 0 cannot be written: librdkafka takes it for the present time")
    if options.keep_partitions and not options.json:
        raise BadUsage("--keep-partitions is for --json")
    config = client_config(options)
    if "transactional.id" in config:
        raise BadUsage(
            "transactional.id is set, but this command begins no transactions: remove it"
        )
    with ExitStack() as opened:
        sources = _sources(options, opened)
        try:
            producer = on_cluster(options, partial(_checked_producer, options, config))
        except errors.UnsupportedSetting:  # librdkafka may support it
            producer = _producer(options, config)
        return Sender(options, producer).run(sources)


def _producer(options: Namespace, config: Mapping[str, Any]) -> confluent_kafka.Producer:
    """Make the producer.

    :raises BadUsage: librdkafka does not accept its configuration
    """
    settings = {
        "log_level": 2,  # the command reports errors
        "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
        "enable.idempotence": str(config.get("acks", "all")) in ("-1", "all"),
        "compression.type": options.compression,
        **config,
    }
    try:
        return confluent_kafka.Producer(settings)
    except confluent_kafka.KafkaException as error:
        raise BadUsage(errors.error_line(error)) from error


async def _checked_producer(
    options: Namespace, config: Mapping[str, Any], cluster: Cluster
) -> confluent_kafka.Producer:
    """Make the producer, and check that the topic has the partition: librdkafka would retry, or
    create the topic.

    :raises ClientError: the topic does not exist, or no broker answers or accepts the login
    """
    # It gets its id while the topic is looked up: a producer that is given records at once waits
    # for half a second.
    producer = _producer(options, config)
    topic = (await cluster.topics([options.topic]))[options.topic]
    if options.partition is not None:
        check_partition(options.partition, topic)
    return producer


Source = tuple[str, Iterator[bytes]]
"""The name of an input, for error texts, and its lines."""


def _lines(file: IO[bytes], *, whole: bool) -> Iterator[bytes]:
    """Yield each line of a file without its end, or the whole content."""
    if whole:
        yield file.read()
        return
    for line in file:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _sources(options: Namespace, opened: ExitStack) -> list[Source]:
    """Open all files before the first record is sent.

    :raises BadUsage: one cannot be read
    """
    if not options.files:
        return [("stdin", _lines(sys.stdin.buffer, whole=False))]
    try:
        return [
            (str(path), _lines(opened.enter_context(path.open("rb")), whole=options.whole))
            for path in options.files
        ]
    except OSError as error:
        raise BadUsage(f"cannot read {error.filename}: {error.strerror}") from error


@dataclass(slots=True)
class Sender:
    """One run of the command: counts the records that librdkafka took, and that brokers stored.

    After a Ctrl-C it sends what librdkafka took, after a second one it drops it.
    """

    options: Namespace
    producer: Any
    _sent: int = 0
    _acknowledged: int = 0
    _refused: KafkaError | None = None
    _interrupted: int = 0
    _is_reading: bool = False

    def run(self, sources: Sequence[Source]) -> int:
        """Send all records, and wait until they are acknowledged.

        :returns: the exit status
        :raises Failure: a line is malformed, or a record was refused
        """
        problem: Failure | None = None
        with signals_handled(self._interrupt, signal.SIGINT):
            try:
                for name, lines in sources:
                    self._send_all(name, lines)
            except KeyboardInterrupt:
                pass
            except Failure as failure:
                problem = failure
            while self.producer.flush(_WAIT_S):
                if self._refused is not None or self._interrupted > 1:
                    self.producer.purge()
        if self._refused is not None:
            what = f"topic '{self.options.topic}'"
            why = errors.error_line(self._refused).rstrip(".")
            advice = errors.missing_permission(self._refused.code(), f"WRITE on {what}")
            text = f"a record for {what} was refused: {why}" + (f": {advice}" if advice else "")
            problem = problem or Failure(text)
        done, lost = self._acknowledged, self._sent - self._acknowledged
        stored = "1 record was acknowledged" if done == 1 else f"{done} records were acknowledged"
        if problem is not None or lost:
            raise Failure(f"{problem or f'{lost} records were not acknowledged'}; {stored}")
        interrupted = "headrace produce: interrupted; " if self._interrupted else ""
        tell(f"{interrupted}{stored}")
        return 130 if self._interrupted else 0

    def _interrupt(self, *_: object) -> None:
        # An exception in a callback of librdkafka would be lost.
        self._interrupted += 1
        if self._is_reading:
            raise KeyboardInterrupt

    def _send_all(self, name: str, lines: Iterator[bytes]) -> None:
        for number in count(1):
            if self._interrupted or self._refused is not None:
                return
            self._is_reading = True
            try:
                line = next(lines, None)
            except OSError as error:
                raise Failure(f"cannot read {name}: {one_line_error(error)}") from error
            finally:
                self._is_reading = False
            if line is None:
                return
            try:
                record = self._record(line)
                if record is not None:
                    self._send(record)
            except (MalformedLine, confluent_kafka.KafkaException) as error:
                why = errors.error_line(error)
                raise Failure(f"line {number} of {name}: {why}") from error
            self.producer.poll(0)

    def _record(self, line: bytes) -> NewRecord | None:
        options = self.options
        if options.json:
            return read_record(line, keep_partitions=options.keep_partitions)
        if options.key_separator is None:
            return NewRecord(None, line, [])
        key, separated, value = line.partition(options.key_separator)
        if not separated:
            raise MalformedLine("it has no key separator")
        return NewRecord(key, value, [])

    def _send(self, record: NewRecord) -> None:
        options = self.options
        key = record.key if options.key is None else options.key.encode()
        partition = record.partition if options.partition is None else options.partition
        timestamp_ms = record.timestamp_ms if options.timestamp is None else options.timestamp
        while not self._interrupted and self._refused is None:
            try:
                self.producer.produce(
                    options.topic,
                    record.value,
                    key,
                    -1 if partition is None else partition,
                    headers=[*record.headers, *options.headers],
                    timestamp=timestamp_ms or 0,
                    on_delivery=self._delivered,
                )
                self._sent += 1
                return
            except BufferError:  # the queue is full: wait for deliveries
                self.producer.poll(_WAIT_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._refused is None and error.code() not in (
            confluent_kafka.KafkaError._PURGE_QUEUE,
            confluent_kafka.KafkaError._PURGE_INFLIGHT,
        ):
            self._refused = error
