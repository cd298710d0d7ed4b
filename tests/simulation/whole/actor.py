"""A client of the whole broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode
from tests.kio_messages import request_type
from tests.wire_client import fitted, message

from ..clients import Client
from ..network import GOOD
from ..witness import Violation

if TYPE_CHECKING:
    from .world import World

STORAGE = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a broker whose disk fails; such a request is tried again."""


class Actor(Client):
    """A client with one request under way at a time.

    :ivar asked_ms: when it was sent. Its response may be much later, because the broker waits for a
        slow disk, and a session counts from the request
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.network, name)
        self.world = world
        self.asked_ms = 0

    def ask(
        self, api_key: int, version: int, on_answer: Callable[[Any], None], **fields: Any
    ) -> None:
        """Send a request by its fields."""
        request = message(request_type(api_key, version), **fitted(api_key, version, fields))
        life = self.world.life
        self.asked_ms = self.world.machine.loop.now_ms

        def answered(answer: Any) -> None:
            try:
                on_answer(answer)
            except Exception as error:
                self.world.problems.append(error)

        fate = GOOD if self.world.is_calm else self.world.fate()
        self.send(request, answered, fate)
        assert life == self.world.life

    def failed(self, code: int, *expected: ErrorCode) -> bool:
        """Return whether a request failed.

        :raises Violation: for an error that is not expected, and that a failing disk does not
            explain
        """
        error = ErrorCode(int(code))
        if not error:
            return False
        if error not in expected and not (error in STORAGE and self.world.machine.disk.was_sick):
            raise Violation(f"{self.name} is answered with {error.name}")
        return True
