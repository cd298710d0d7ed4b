"""How tasks tell the driver what their merge saw, for the query's progress.

Spark has no way for a Python source's tasks to report numbers. So the reader listens on the address
from which it reaches the brokers, with a random token that travels with the tasks, and a task says
what it counted in one line of JSON when it is done. Nothing but the progress depends on it: where
the driver cannot be reached, the numbers are missing there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import NamedTuple

_log = logging.getLogger(__name__)

_TIMEOUT_S = 2.0
_LONGEST_LINE_BYTES = 4096
_DISCARD_PORT = 9

Counted = tuple[int, int, int, int, int, int]
"""(task, piece, records, enforced, late, stream time in ms)"""


class Desk(NamedTuple):
    """Where to report what was counted in one micro-batch."""

    host: str
    port: int
    token: str
    batch: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Since the query was started, in the terms of Kafka Streams' metrics of a task.

    :param enforced_processing: records taken after a partition had none left that might still have
        had an earlier one
    :param late_records: records behind the stream time, which is the largest timestamp of the task
        until then
    """

    records: int = 0
    enforced_processing: int = 0
    late_records: int = 0

    def plus(self, counted: Counted) -> Totals:
        """With one task's numbers added."""
        _, _, records, enforced, late, _ = counted
        return Totals(
            self.records + records, self.enforced_processing + enforced, self.late_records + late
        )


class Tally:
    """The reader's end. Listens from the start.

    :param towards: host of a broker: the address from which it is reached is listened on
    """

    def __init__(self, towards: str) -> None:
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server((_own_address(towards), 0))
        self._lock = threading.Lock()
        self._batch = 0
        self._before = Totals()
        self._counted: dict[tuple[int, int], Counted] = {}
        self._stream_times: dict[int, int] = {}
        threading.Thread(target=self._serve, name="headrace-tally", daemon=True).start()

    def next_batch(self) -> Desk:
        """The tasks of another micro-batch are about to run; reports about earlier ones are not
        taken any more.
        """
        with self._lock:
            self._before = self._sum()
            for task, _, _, _, _, stream_time_ms in self._counted.values():
                self._stream_times[task] = max(stream_time_ms, self._stream_times.get(task, -1))
            self._counted.clear()
            self._batch += 1
            host, port = self._socket.getsockname()[:2]
            return Desk(host, port, self._token, self._batch)

    def totals(self) -> Totals:
        """What has been counted until now. A task that ran twice counts once."""
        with self._lock:
            return replace(self._sum())

    def stream_times(self) -> Mapping[int, int]:
        """Task → the largest timestamp that it has yielded in earlier micro-batches."""
        return self._stream_times

    def close(self) -> None:
        """Listen no longer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(
                socket.SHUT_RDWR
            )  # which wakes who waits for a connection; closing does not
        self._socket.close()

    def _sum(self) -> Totals:
        totals = self._before
        for counted in self._counted.values():
            totals = totals.plus(counted)
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
                    self._take(connection)
                except (OSError, ValueError, TypeError):
                    continue  # whoever that was

    def _take(self, connection: socket.socket) -> None:
        line = b""
        while not line.endswith(b"\n"):
            received = connection.recv(_LONGEST_LINE_BYTES)
            line += received
            if not received or len(line) > _LONGEST_LINE_BYTES:
                return
        token, batch, counted = json.loads(line)
        if not compare_digest(str(token), self._token):
            return
        task, piece, records, enforced, late, stream_time_ms = map(int, counted)
        with self._lock:
            if batch == self._batch:
                self._counted[task, piece] = (task, piece, records, enforced, late, stream_time_ms)
        connection.sendall(b"\n")


def report(desk: Desk, counted: Counted) -> None:
    """The task's end. What cannot be delivered is dropped."""
    line = json.dumps([desk.token, desk.batch, counted]).encode() + b"\n"
    try:
        with socket.create_connection((desk.host, desk.port), _TIMEOUT_S) as connection:
            connection.sendall(line)
            connection.recv(1)  # it has been counted
    except OSError as error:
        _log.info("the driver does not listen for progress: %s", error)


def _own_address(towards: str) -> str:
    """The address of this host that packets to another one come from."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            towards, _DISCARD_PORT, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
