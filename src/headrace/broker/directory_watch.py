"""Notice that the data directory, or a file in use, was deleted under the running broker.

A deleted file can still be written through its open handle: without this check, records would be
acknowledged and then lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import get_logger

DIRECTORY_CHECK_INTERVAL_S = 0.2
"""The time between two checks that the data directory was not deleted, moved or replaced. Records
that were acknowledged since the last check are lost with it.
"""

DIRECTORY_CHECK_LOGS = 500
"""The most logs whose active segments one check looks for."""

DIRECTORY_CHECK_ROUND = 5
"""The number of checks that visit each log once, unless there are too many logs. If each check
visited all of 100 logs, an idle broker would spend half of its CPU time on them.
"""

log = get_logger("headrace.broker")


class DirectoryWatch:
    """Checks the data directory at an interval. Belongs to the broker's event loop.

    :ivar loss: the reason why the directory cannot be used any more, and the broker cannot go on;
        None if it can
    :ivar on_loss: called once when the directory is lost
    """

    def __init__(self, logs: LogDirectory) -> None:
        self.loss: str | None = None
        self.on_loss: Callable[[], object] = lambda: None
        self._logs = logs
        self._unchecked: list[PartitionLog] = []
        self._at_once = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check from now on."""
        self._timer = asyncio.get_running_loop().call_later(
            DIRECTORY_CHECK_INTERVAL_S, self._check_again
        )

    def close(self) -> None:
        """Stop, after a last check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.check(DIRECTORY_CHECK_LOGS)

    def check(self, count: int | None = None) -> None:
        """Check the directory, and the next few logs; have the names of new partitions saved.

        :param count: the number of logs to check; None for a share of all logs
        """
        if self.loss is not None:
            return
        self.loss = self._logs.find_loss()
        if self.loss is not None:
            log.error("%s: no record is acknowledged any more, and the broker stops", self.loss)
            self.on_loss()
            return
        self._logs.directory.save_created()
        if not self._unchecked:
            self._unchecked = list(self._logs)
            share = -(-len(self._unchecked) // DIRECTORY_CHECK_ROUND)
            self._at_once = min(share, DIRECTORY_CHECK_LOGS)
        for _ in range(min(count or self._at_once, len(self._unchecked))):
            self._unchecked.pop().check_files()

    def _check_again(self) -> None:
        self.check()
        if self.loss is None:
            self.start()
