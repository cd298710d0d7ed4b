"""The network between clients and broker: frames without sockets, and their faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.net.connection import Connection
from headrace.net.listener_security import ListenerSecurity
from headrace.protocol.frames import SIZE
from tests.wire_client import decode, encode

from .disk import Power, PowerCut
from .power import Machine

GOOD, LOST_REQUEST, LOST_ANSWER, DOUBLED = "good", "lost request", "lost answer", "doubled"
"""Fates of a request. A lost request and a lost answer look the same to the sender."""

Answered = Callable[[Any], None]
"""Receives the answer, or None when there will be none."""


class Observer(Protocol):
    """Observes all frames between clients and broker."""

    def arrived(self, connection_id: int, request: Any) -> object:
        """Take note of a request that the broker is about to serve; the result is passed to
        :meth:`answered`.
        """

    def answered(
        self, connection_id: int, request: Any, foreseen: Any, answer: Any, frame: bytes
    ) -> None:
        """Take note of an answer that the broker has sent, whether or not it arrives."""

    def disconnected(self, connection_id: int) -> None:
        """Take note of the end of a connection, which the broker has handled."""


@dataclass(slots=True)
class _Sent:
    request: Any
    on_answer: Answered | None
    is_answered: bool = True
    foreseen: Any = None


class Network:
    """All connections to a machine."""

    def __init__(self, machine: Machine, power: Power, observer: Observer) -> None:
        self.machine, self.power, self.observer = machine, power, observer
        self.wires: list[Wire] = []

    def connect(self, client_id: str) -> Wire:
        """Return a new connection."""
        wire = Wire(self, client_id)
        self.wires.append(wire)
        return wire

    def down(self) -> None:
        """Drop all connections without telling the broker, which has died."""
        for wire in self.wires:
            wire.lose()
        self.wires.clear()

    def cut_all(self) -> None:
        """End all connections; the broker notices."""
        for wire in list(self.wires):
            wire.cut()


class Wire:
    """One connection and its transport to the broker. A request is delivered when the one before is
    answered.
    """

    def __init__(self, network: Network, client_id: str) -> None:
        self.client_id = client_id
        self.is_open = True
        self._network = network
        self._queue: deque[_Sent] = deque()
        self._serving: _Sent | None = None
        self._answer = b""
        """What has arrived of an answer."""
        self._connection = Connection(
            network.machine.server.shared,
            network.machine.server.listeners[0],
            ListenerSecurity(),
        )
        self._connection.connection_made(self)

    # The client's end

    def send(self, request: Any, on_answer: Answered, fate: str = GOOD) -> None:
        """Send one of kio's requests."""
        if fate == LOST_REQUEST or not self.is_open:
            on_answer(None)
            return
        self._queue.append(_Sent(request, on_answer, is_answered=fate != LOST_ANSWER))
        if fate == DOUBLED:
            self._queue.append(_Sent(request, None))
        self._pump()

    def cut(self) -> None:
        """Break the connection; both ends notice."""
        if self.is_open:
            self.lose()
            self._network.wires.remove(self)
            self._lost()

    def lose(self) -> None:
        """Break the connection; only the client notices."""
        self.is_open = False
        unanswered = [*([self._serving] if self._serving else []), *self._queue]
        self._serving = None
        self._queue.clear()
        for sent in unanswered:
            if sent.on_answer:
                sent.on_answer(None)

    # Transport

    def _pump(self) -> None:
        if self._serving is not None or not self._queue or self._network.power.is_off:
            return
        sent = self._serving = self._queue.popleft()
        connection = self._connection
        sent.foreseen = self._network.observer.arrived(
            connection.session.client.connection_id, sent.request
        )
        frame = encode(sent.request, 0, self.client_id)
        connection.get_buffer(-1)[: len(frame)] = frame
        try:
            connection.buffer_updated(len(frame))
        except PowerCut:
            pass

    def write(self, data: bytes | memoryview) -> None:
        self.send_views([data])

    def send_views(self, views: Sequence[bytes | memoryview]) -> int:
        if not self._network.power.is_off and self.is_open:
            self._answer += b"".join(views)
            if len(self._answer) == SIZE.size + SIZE.unpack_from(self._answer)[0]:
                self._end_answer()
        return sum(map(len, views))

    def _end_answer(self) -> None:
        frame, self._answer = self._answer, b""
        sent, self._serving = self._serving, None
        assert sent is not None, "an answer that nobody asked for"
        answer = decode(sent.request.__api_key__, sent.request.__version__, frame[SIZE.size :])
        self._network.observer.answered(
            self._connection.session.client.connection_id,
            sent.request,
            sent.foreseen,
            answer,
            frame,
        )
        if sent.on_answer:
            sent.on_answer(answer if sent.is_answered else None)
        if self._queue:
            self._network.machine.loop.call_soon(self._pump)

    def close(self) -> None:
        raise AssertionError("the broker closes the connection of a client that did nothing wrong")

    abort = close

    def _lost(self) -> None:
        try:
            self._connection.connection_lost(None)
        except PowerCut:
            return
        if not self._network.power.is_off:
            self._network.observer.disconnected(self._connection.session.client.connection_id)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("client", 1) if name == "peername" else None

    def pause_reading(self) -> None:
        raise AssertionError("one request at a time is no flood")

    resume_reading = pause_reading
