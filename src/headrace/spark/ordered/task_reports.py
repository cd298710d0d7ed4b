"""Reports of tasks to the driver about their merge, for the query's progress.

Spark offers the tasks of a Python source no way to report numbers. So the reader listens on the
address from which it reaches the brokers, with a random token that travels with the tasks. A task
that is done sends its counts in one line of JSON. Only the progress depends on it: if the driver
cannot be reached, its numbers are missing.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import NamedTuple

from headrace.log_lines import get_logger
from headrace.spark.own_address import own_address

_log = get_logger(__name__)

_TIMEOUT_S = 2.0
_LONGEST_LINE_BYTES = 4096


class ReportAddress(NamedTuple):
    """The address for reports about one micro-batch.

    :param token: a secret that reports must contain
    :param batch: number of the micro-batch
    """

    host: str
    port: int
    token: str
    batch: int


class TaskReport(NamedTuple):
    """The counts of one task's merge; see :class:`headrace.spark.ordered.merge.MergeCounts`."""

    task: int
    piece: int
    records: int
    enforced: int
    late: int
    stream_time_ms: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the query was started, in the terms of Kafka Streams' task metrics.

    :param enforced_processing: records taken after a partition had none left that might still have
        had an earlier one
    :param late_records: records before the stream time, which is the largest timestamp of the task
        until then
    """

    records: int = 0
    enforced_processing: int = 0
    late_records: int = 0

    def plus(self, report: TaskReport) -> Totals:
        """Return the totals with one task's counts added."""
        return Totals(
            self.records + report.records,
            self.enforced_processing + report.enforced,
            self.late_records + report.late,
        )


class ReportServer:
    """The reader's end: listens for reports from its creation on, and adds them up.

    :param towards: host of a broker; the server listens on the address from which it is reached
    """

    def __init__(self, towards: str) -> None:
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server((own_address(towards), 0))
        self._lock = threading.Lock()
        self._batch = 0
        self._before = Totals()
        self._reports: dict[tuple[int, int], TaskReport] = {}
        self._stream_times_ms: dict[int, int] = {}
        threading.Thread(target=self._serve, name="headrace-reports", daemon=True).start()

    def next_batch(self) -> ReportAddress:
        """Return the address for the next micro-batch; earlier ones are no longer accepted."""
        with self._lock:
            self._before = self._sum()
            for report in self._reports.values():
                before_ms = self._stream_times_ms.get(report.task, -1)
                self._stream_times_ms[report.task] = max(report.stream_time_ms, before_ms)
            self._reports.clear()
            self._batch += 1
            host, port = self._socket.getsockname()[:2]
            return ReportAddress(host, port, self._token, self._batch)

    def totals(self) -> Totals:
        """Return the totals so far. A task that ran twice counts once."""
        with self._lock:
            return self._sum()

    def stream_times_ms(self) -> Mapping[int, int]:
        """Return task → the largest timestamp of its earlier micro-batches."""
        return self._stream_times_ms

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            # This wakes the thread that waits for a connection; closing the socket does not.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _sum(self) -> Totals:
        totals = self._before
        for report in self._reports.values():
            totals = totals.plus(report)
        return totals

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.settimeout(_TIMEOUT_S)
                    self._receive(connection)
                except Exception:
                    continue  # not a report

    def _receive(self, connection: socket.socket) -> None:
        line = b""
        while not line.endswith(b"\n"):
            received = connection.recv(_LONGEST_LINE_BYTES)
            line += received
            if not received or len(line) > _LONGEST_LINE_BYTES:
                return
        token, batch, numbers = json.loads(line)
        if not compare_digest(str(token), self._token):
            return
        report = TaskReport(*map(int, numbers))
        with self._lock:
            if batch == self._batch:
                self._reports[report.task, report.piece] = report
        connection.sendall(b"\n")


def send_report(address: ReportAddress, report: TaskReport) -> None:
    """Send a task's report. It is dropped if it cannot be delivered."""
    line = json.dumps([address.token, address.batch, report]).encode() + b"\n"
    try:
        with socket.create_connection((address.host, address.port), _TIMEOUT_S) as connection:
            connection.sendall(line)
            connection.recv(1)  # the server has added it
    except OSError as error:
        _log.info("the driver does not accept reports: %s", error)
