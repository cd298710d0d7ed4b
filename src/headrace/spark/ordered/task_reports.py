"""Reports of tasks to the driver about their merge, for the query's progress.

Spark offers the tasks of a Python source no way to report numbers. So the reader takes requests
(:mod:`headrace.spark.driver_server`): on a Unix socket if it reaches the brokers on the loopback
interface, because then the tasks run on its host, and otherwise at the address from which it
reaches the brokers. A task that is done sends its counts. Only the progress depends on them: if the
driver cannot be reached, its numbers are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.client.loop_thread import LoopThread
from headrace.log_lines import get_logger
from headrace.spark.driver_server import Address, DriverServer, exchange

_log = get_logger(__name__)

_TIMEOUT_S = 2.0
_MAX_REPORT_BYTES = 4096


class ReportAddress(NamedTuple):
    """The address for reports about one micro-batch.

    :param batch: number of the micro-batch
    """

    server: Address
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
        self._thread = LoopThread("headrace-reports")
        self._server = DriverServer(self._add, _MAX_REPORT_BYTES)
        self._address = self._thread.run(self._server.listen_for_tasks(towards))
        self._lock = threading.Lock()
        self._batch = 0
        self._before = Totals()
        self._reports: dict[tuple[int, int], TaskReport] = {}
        self._stream_times_ms: dict[int, int] = {}

    def next_batch(self) -> ReportAddress:
        """Return the address for the next micro-batch; earlier ones are no longer accepted."""
        with self._lock:
            self._before = self._sum()
            for report in self._reports.values():
                before_ms = self._stream_times_ms.get(report.task, -1)
                self._stream_times_ms[report.task] = max(report.stream_time_ms, before_ms)
            self._reports.clear()
            self._batch += 1
            return ReportAddress(self._address, self._batch)

    def totals(self) -> Totals:
        """Return the totals so far. A task that ran twice counts once."""
        with self._lock:
            return self._sum()

    def stream_times_ms(self) -> Mapping[int, int]:
        """Return task → the largest timestamp of its earlier micro-batches."""
        return self._stream_times_ms

    def close(self) -> None:
        """Stop listening."""
        self._thread.close(_TIMEOUT_S, last=self._close())

    async def _close(self) -> None:
        self._server.close()

    def _sum(self) -> Totals:
        totals = self._before
        for report in self._reports.values():
            totals = totals.plus(report)
        return totals

    async def _add(self, request: Any) -> dict[str, Any]:
        batch, numbers = request
        report = TaskReport(*map(int, numbers))
        with self._lock:
            if batch == self._batch:
                self._reports[report.task, report.piece] = report
        return {}


def send_report(address: ReportAddress, report: TaskReport) -> None:
    """Send a task's report. It is dropped if it cannot be delivered."""
    try:
        exchange(address.server, [address.batch, report], _TIMEOUT_S)
    except OSError as error:
        _log.info("the driver does not accept reports: %s", error)
