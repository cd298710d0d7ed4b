"""``headrace perf produce``: measure the throughput and latency of producing with librdkafka.

The options and the output are those of Kafka's ``kafka-producer-perf-test``.
"""

from __future__ import annotations

import random
import signal
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from itertools import count
from string import ascii_uppercase
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.cli.errors import BadUsage, Failure
from headrace.cli.librdkafka import (
    librdkafka_options,
    one_line,
    partitions,
    producer_config,
    reason,
)
from headrace.cli.options import file_option, flag, number_option, positive_number
from headrace.cli.tables import json_line

from .report import Bar, Latencies

UNLIMITED = -1.0

_PAYLOADS = 256  # limit of distinct random payloads: more would only take time to make
_PAYLOADS_BYTES = 16 * 1024 * 1024  # limit of their total size
_SEED = 0
_CHECK_EVERY = 64  # records between two readings of the clock without a limit of throughput
_BAR_EVERY_S = 0.2
_LONGEST_WAIT_S = 0.1


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Measure the throughput and latency of producing."
    librdkafka_options(parser, "--producer-props", "--producer.config")
    parser.add_argument("--topic", required=True, help="the topic to produce to; it must exist")
    parser.add_argument(
        "--num-records", type=positive_number, required=True, metavar="N", help="number of records"
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    number_option(payload, "--record-size", "random payloads of this size", metavar="BYTES")
    file_option(payload, "--payload-file", "payloads from a file, chosen at random")
    flag(payload, "--payload-monotonic", "use the number of the record as payload: 0, 1, 2, …")
    parser.add_argument(
        "--payload-delimiter",
        default="\\n",
        metavar="TEXT",
        help="separator of payloads in the file (default: \\n)",
    )
    parser.add_argument(
        "--throughput",
        type=throughput,
        default=UNLIMITED,
        metavar="RATE",
        help=(
            "limit of records per second; 0.5 is one record every two seconds "
            "(default: -1, no limit)"
        ),
    )
    parser.add_argument(
        "--warmup-records",
        type=int,
        default=0,
        metavar="N",
        help="print a second result for the records after the first N",
    )
    number_option(parser, "--reporting-interval", "interval between two lines", 5000, metavar="MS")
    flag(parser, "--json", "print the results as one JSON object")


def throughput(text: str) -> float:
    """Parse a number of records per second; -1 means no limit.

    :raises ArgumentTypeError: it is neither
    """
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if rate != UNLIMITED and not 0 < rate < float("inf"):
        raise ArgumentTypeError(
            f"{text!r} is not a rate: records per second, such as 1000 or 0.5; -1 for no limit"
        )
    return rate


def payloads(options: Namespace) -> Iterator[bytes]:
    """Return an endless iterator of payloads as the options describe them.

    :raises BadUsage: the file cannot be read, or has no payload
    """
    if options.payload_monotonic:
        return (b"%d" % n for n in count())
    chance = random.Random(_SEED)
    if options.payload_file is None:
        letters = (ascii_uppercase.encode() * 10)[:256]
        different = min(_PAYLOADS, max(1, _PAYLOADS_BYTES // options.record_size))
        choices = [
            chance.randbytes(options.record_size).translate(letters) for _ in range(different)
        ]
    else:
        delimiter = options.payload_delimiter.replace("\\n", "\n").replace("\\t", "\t")
        try:
            text = options.payload_file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BadUsage(f"cannot read {options.payload_file}: {error}") from error
        choices = [piece.encode() for piece in text.split(delimiter) if piece]
        if not choices:
            raise BadUsage(f"{options.payload_file} has no payloads")
    return (chance.choice(choices) for _ in count())


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: 0, or 130 when interrupted
    :raises Failure: no broker answers, the topic is missing, or a record was refused
    """
    config = producer_config(options)
    values = payloads(options)
    partitions(config, options.topic)
    try:
        test = ProduceTest(options, Producer({"delivery.timeout.ms": 120_000, **config}))
    except KafkaException as error:
        raise BadUsage(one_line(error)) from error
    # librdkafka's callbacks would swallow a KeyboardInterrupt: set a flag instead.
    before = signal.signal(signal.SIGINT, lambda *_: test.interrupt())
    with Bar(f"producing to {options.topic}", options.num_records) as bar:
        test.run(values, bar)
        signal.signal(signal.SIGINT, before)
        test.finish()
    test.report()
    return 130 if test.interrupted else 0


class ProduceTest:
    """One run of the test.

    :ivar interrupted: True after :meth:`interrupt`
    """

    def __init__(self, options: Namespace, producer: Any) -> None:
        self._options = options
        self._producer = producer
        self.interrupted = False
        self._refused: KafkaError | None = None
        self._started_s = self._ended_s = now_s = time.perf_counter()
        self._total = Latencies(now_s)
        self._window = Latencies(now_s)
        self._steady: Latencies | None = None
        self._next_bar_s = now_s
        self._next_line_s = now_s + options.reporting_interval / 1000

    def interrupt(self) -> None:
        """End the run after the current record."""
        self.interrupted = True

    def run(self, values: Iterator[bytes], bar: Bar) -> None:
        """Send the records, no faster than the given rate."""
        options, verbose = self._options, not self._options.json and not bar.shown
        rate, on_delivery = options.throughput, self._delivered
        if options.warmup_records and verbose:
            print(
                f"Warmup first {options.warmup_records} records. "
                "Steady state results will print after the complete test summary."
            )
        for n, value in zip(range(options.num_records), values, strict=False):
            if n == options.warmup_records and n:
                self._steady, on_delivery = Latencies(time.perf_counter()), self._delivered_steady
                if verbose:
                    print("In steady state.", flush=True)
            if rate != UNLIMITED:
                self._wait_until(self._started_s + n / rate)
            if self.interrupted:
                return
            self._send(value, on_delivery)
            if rate != UNLIMITED or n % _CHECK_EVERY == 0:
                self._producer.poll(0)
                self._report_progress(bar, verbose)

    def _wait_until(self, due_s: float) -> None:
        while not self.interrupted and (wait_s := due_s - time.perf_counter()) > 0:
            self._producer.poll(min(wait_s, _LONGEST_WAIT_S))
            self._raise_refused()

    def _send(
        self, value: bytes, on_delivery: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while not self.interrupted:
            try:
                self._producer.produce(self._options.topic, value, on_delivery=on_delivery)
                return
            except BufferError:  # the queue is full: wait for deliveries
                self._producer.poll(_LONGEST_WAIT_S)
                self._raise_refused()
            except KafkaException as error:
                raise self._refusal(error) from error

    def _report_progress(self, bar: Bar, verbose: bool) -> None:
        """Update the bar and print a line, each when it is due.

        :raises Failure: a record was refused
        """
        self._raise_refused()
        now_s = time.perf_counter()
        if now_s >= self._next_bar_s:
            self._next_bar_s = now_s + _BAR_EVERY_S
            bar.update(self._total.count, f"{self._total.rate(now_s)[0]:,.0f} records/s")
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + self._options.reporting_interval / 1000
            if verbose:
                print(self._window.window(now_s), flush=True)
            self._window = Latencies(now_s)

    def finish(self) -> None:
        """Wait until all records are acknowledged.

        :raises Failure: a record was refused, or not acknowledged in time
        """
        left = self._producer.flush()
        self._ended_s = time.perf_counter()
        self._raise_refused()
        if left:
            raise Failure(f"{left} records were not acknowledged")

    def report(self) -> None:
        """Print the results."""
        steady, ended_s = self._steady, self._ended_s
        if self._options.json:
            results: dict[str, Any] = self._total.as_json(ended_s)
            if steady is not None:
                results["steadyState"] = steady.as_json(ended_s)
            print(json_line(results))
            return
        print(self._total.total(ended_s))
        if steady is not None:
            print(steady.total(ended_s, "steady state records"))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused = self._refused or error
            return
        latency_s, size_bytes = message.latency() or 0.0, len(message)
        self._total.add(latency_s, size_bytes)
        self._window.add(latency_s, size_bytes)

    def _delivered_steady(self, error: KafkaError | None, message: Message) -> None:
        self._delivered(error, message)
        if error is None and self._steady is not None:
            self._steady.add(message.latency() or 0.0, len(message))

    def _raise_refused(self) -> None:
        if self._refused is not None:
            self._producer.purge()
            raise self._refusal(self._refused)

    def _refusal(self, error: KafkaException | KafkaError) -> Failure:
        why = reason(error, self._options.topic, "WRITE", "")
        return Failure(f"a record for topic '{self._options.topic}' was refused: {why}")
