"""What a function may know of the record that it processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from logging import LoggerAdapter
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.records import Record


@dataclass(slots=True, eq=False)
class Delivery:
    """The delivery of a record to a function that has a parameter of this type.

    :ivar record: with key, headers and offset; ``value`` is bytes
    :ivar attempt: the number of this attempt, from 1
    :ivar task: the name of the task or subscriber
    :ivar group: the name of the share group
    :ivar log: a logger whose lines name the record
    """

    record: Record
    attempt: int
    task: str
    group: str
    log: LoggerAdapter[Any] = field(repr=False)
    _renew: Callable[[], Awaitable[None]] = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = self.record, self.attempt, self.task, self.group, self.log
        return Delivery, (*fields, _renew_elsewhere)

    async def renew(self) -> None:
        """Restart the lock of the record now. It is renewed without this, too, as long as the
        function runs.

        :raises ClientError: the lock was lost: another worker has the record
        """
        await self._renew()


class RecordLog(LoggerAdapter):  # type: ignore[type-arg]
    """Puts the place of a record before each line."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return f"{(self.extra or {})['record']}: {msg}", kwargs


async def _renew_elsewhere() -> None:
    raise ClientError("a process cannot renew: the worker does, as long as the function runs")
