"""A call: one request of a client, and the road from its bytes to those of its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from headrace.protocol.authorized_operations import Operation
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.file_range import Piece
from headrace.protocol.frames import BadFrame, RequestHeader
from headrace.protocol.primitives import NullArray
from headrace.protocol.schema import Encoded
from headrace.protocol.time_slices import SLICE_MS, run_now
from headrace.security.principal import ANONYMOUS, Principal

from . import log, wire
from .access_control import UNLIMITED, Access
from .api import DESCRIBE, ERROR_OF, REBALANCE_PROTOCOLS, TOPIC, Api, Each, Owner, Whole
from .audit import MAX_LINES, Change
from .listeners import Listener
from .refusals import refusing_all, refusing_item
from .services import Services

if TYPE_CHECKING:
    from .client_quotas import RequestCharge

SLICED_ABOVE = 100
"""A request about more resources than this is served in slices, see
:mod:`headrace.protocol.time_slices`.
"""

RECEIVE_BUFFER_BYTES = 256 * 1024
"""The buffer that all connections receive into: the most bytes that one read returns."""

T = TypeVar("T")
R = TypeVar("R")


SLICE_S = SLICE_MS / 1000
SLICED_REQUEST_BYTES = 32 * 1024
"""The size above which a request is read in slices of time. A quick one has the size of the receive
buffer, so that it need not be copied out of it.
"""
MAX_SHARED_ARRAYS = 100
"""The arrays that items of one response have in common."""


@dataclass(slots=True, repr=False, eq=False)
class LazyArray(Collection[T]):
    """An array of a response, whose items are made when they are written. It can be iterated over
    once.

    :param _count: the number of items
    """

    _count: int
    _items: Iterable[T]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __contains__(self, item: object) -> bool:
        raise TypeError("the items of a lazy array are made once, when they are written")


class CloseConnection(Exception):
    """The protocol has no response for this error; the connection is closed."""


@dataclass(slots=True)
class Client:
    """The client of a connection.

    :param host: its address
    :param connection_id: the connection's number, unique while the broker runs
    :param listener: the listener that it has connected to
    :param principal: the authenticated client
    :param access: its permissions
    :param charge: its use of client quotas; None without quotas
    :param is_logging_in: True if it has to log in before it may ask for anything else
    """

    host: str
    connection_id: int
    listener: Listener
    principal: Principal = ANONYMOUS
    access: Access = UNLIMITED
    charge: RequestCharge | None = None
    is_logging_in: bool = False

    @property
    def address(self) -> str:
        """Its address with a leading slash, as Kafka prints it."""
        return f"/{self.host}"


@dataclass(slots=True, repr=False, eq=False)
class Call(Services):
    """A request that is being served. The services of its broker are its own, too.

    :param version: of the API that the client has sent
    :param client_id: of the header of the request
    :param client: who has sent it
    :ivar request: the message, when it has been read
    :ivar is_long: True if its response is written in slices
    :ivar changes: those that it has made for an administrator, as far as they are logged, see
        :mod:`.audit`
    :ivar change_count: the number of all of them
    """

    services: Services
    api: Api
    client: Client
    version: int
    client_id: str | None
    request: Any = None
    is_long: bool = False
    changes: tuple[Change, ...] = ()
    change_count: int = 0
    _slice_end_s: float = 0.0
    _shared_arrays: dict[object, Encoded] | None = None

    @property
    def log_dir(self) -> str:
        """The path of the data directory."""
        return str(self.data_dir.absolute())

    @property
    def node(self) -> tuple[int, str, int]:
        """This node: its id, and the host and port of the listener that the client has reached."""
        return self.node_id, *self.client.listener.address

    # Time -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if the slice of time of this call has been used up. It begins with the first
        look.
        """
        if not self._slice_end_s:
            self._slice_end_s = perf_counter() + SLICE_S
        return perf_counter() >= self._slice_end_s

    async def pause(self) -> None:
        """Serve others if the slice of time of this call is over. Await it in each loop that may be
        long, where nobody may see half a change.
        """
        if self.is_over:
            self.is_long = True
            await self.slices.next()
            self._slice_end_s = perf_counter() + SLICE_S

    async def in_slices(self, steps: Generator[None, None, T]) -> T:
        """Run a generator that yields between its steps, and return its value."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                value: T = end.value
                return value
            await self.pause()

    async def to_end(self, steps: Generator[None, None, T]) -> T:
        """Run a generator that yields between its steps, also if the client goes meanwhile: for a
        change of which nobody may see a half. Return its value.
        """
        while not self.is_over:  # most end within this slice, and need no task
            try:
                next(steps)
            except StopIteration as end:
                value: T = end.value
                return value
        return await self.slices.run_to_end(steps)

    async def each(self, make: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Make a result of each item, in slices."""
        results = []
        for item in items:
            results.append(make(item))
            await self.pause()
        return results

    def lazily(
        self, make: Callable[[T], R], items: Sequence[T], refused: Sequence[R] = ()
    ) -> Collection[R]:
        """Return an array of the response: made now if it is short, else item by item while the
        response is written, in slices.

        :param refused: the last items of the array, see :meth:`allowed_items`
        """
        count = len(items) + len(refused)
        if count <= SLICED_ABOVE:
            return [*map(make, items), *refused]
        self.is_long = True
        return LazyArray(count, chain(map(make, items), refused))

    def encode(self, items: Sequence[Any]) -> Encoded:
        """Return an array of structures of the response as bytes, which it may have many times."""
        return self.api.response.encode(self.version, items)

    def encode_once(self, key: object, make: Callable[[], Sequence[Any]]) -> Encoded:
        """Return an array of structures of the response as bytes; many items have equal ones.

        :param key: the same for items with equal arrays; None for an array that no other item has
        """
        if self._shared_arrays is None:
            self._shared_arrays = {}
        shared = self._shared_arrays
        encoded = shared.get(key)
        if encoded is None:
            encoded = self.encode(make())
            if key is not None and len(shared) < MAX_SHARED_ARRAYS:
                shared[key] = encoded
        return encoded

    async def durable(self) -> None:
        """Wait until everything that was appended is as durable as the flush settings require.

        :raises StorageError: a flush has failed
        """
        if (flush := self.topic_logs.pending_flush()) is not None:
            await flush

    # Changes --------------------------------------------------------------------------------------

    def changed(
        self, operation: Operation, resource_type: Enum, name: str, detail: str = ""
    ) -> None:
        """Note a change that the request has made: it is logged when the request has succeeded.

        :param detail: what was changed, without values of configs; empty if the rest says it
        """
        self.change_count += 1
        if self.change_count <= MAX_LINES:
            self.changes += ((operation, resource_type, name, detail),)

    # Quotas ---------------------------------------------------------------------------------------

    def charge_mutations(self, partitions: int, first_refused: int) -> Refusal | None:
        """Charge the client the creation or deletion of partitions; return the error if its quota
        refuses it now.

        :param first_refused: the first version of the API that is refused; clients of earlier ones
            are throttled instead
        """
        charge = self.client.charge
        is_strict = self.version >= first_refused
        if charge is None or charge.admit_mutations(partitions, strict=is_strict):
            return None
        return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def admits_auto_creation(self, partitions: int) -> bool:
        """Charge the client the partitions of a topic that a request creates on the way, such as
        Metadata; return False if the topic must not be created now. The request itself is not
        throttled: in Apache Kafka the controller meters a CreateTopics request of the broker.
        """
        charge = self.client.charge
        return charge is None or not charge.meter_mutations(partitions)

    # Permissions ----------------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        """The permissions of the client."""
        return self.client.access

    def may(self, operation: int, kind: int, name: str, *, is_audited: bool = True) -> bool:
        """Return whether the client may do an operation on a resource."""
        return self.client.access.allows(operation, kind, name, is_audited=is_audited)

    def may_use_topic(self, operation: int, topic: UUID | str | None) -> bool:
        """Return whether the client may do an operation on a topic; True for an unknown id.

        :param topic: its id (None for the zero id), or its name if the request has that
        """
        access = self.client.access
        if not access.is_limited:
            return True
        if not isinstance(topic, str):
            existing = None if topic is None else self.catalog.topics_by_id.get(topic)
            if existing is None:
                return True
            topic = existing.name
        return access.allows(operation, TOPIC, topic)

    def sees_topic(self) -> Callable[[str], bool] | None:
        """Return a function that tells whether the client may describe a topic; None if it may
        describe all.
        """
        access = self.client.access
        if not access.is_limited:
            return None
        return lambda name: access.allows(DESCRIBE, TOPIC, name, is_audited=False)

    async def allowed(
        self, items: Sequence[T] | None
    ) -> tuple[Sequence[T], list[tuple[T, ErrorCode]]]:
        """Return the items of an array that the rule of the API for each item lets pass, and those
        that it refuses, with their errors.
        """
        access, items = self.client.access, items or ()
        if not access.is_limited:
            return items, []
        rule = self.api.each
        if rule.unless is not None and access.allows_cluster(rule.unless, is_audited=False):
            return items, []
        times: Counter[Any] = Counter()
        for item in items if rule.once else ():
            times[rule.identity(item)] += 1
            await self.pause()
        passed, refused = [], []
        for item in items:
            owner = self._owner(rule, item)
            is_repeated = rule.once and times[rule.identity(item)] > 1
            if owner is None or is_repeated or access.allows(rule.operation, *owner):
                passed.append(item)
            else:
                refused.append((item, ERROR_OF[owner[0]]))
            await self.pause()
        return passed, refused

    async def allowed_items(
        self, items: Sequence[T] | None, structure: Any
    ) -> tuple[Sequence[T], list[Any]]:
        """Return the items that :meth:`allowed` lets pass, and items of the response for those that
        it refuses: the error is in every place that they have for errors.

        :param structure: the class of the items in the response
        """
        allowed, refused = await self.allowed(items)
        api, results = self.api, []
        for item, code in refused:
            refusal = Refusal(code, api.message_of(code))
            steps = refusing_item(item, api.response, structure, refusal)
            results.append(await self.in_slices(steps))
        return allowed, results

    def _owner(self, rule: Each, item: Any) -> Owner:
        if rule.owner is not None:
            return rule.owner(item)
        assert rule.kind is not None
        if rule.ids_from is not None and self.version >= rule.ids_from:
            topic = self.catalog.topics_by_id.get(item.topic_id)
            return None if topic is None else (rule.kind, topic.name)
        return rule.kind, rule.name_of(item)

    def refusal(self, request: Any) -> ErrorCode:
        """Return the error of a request that is refused as a whole, else NONE: a finalized feature
        or a config disables its API for everybody, or its client lacks a permission.
        """
        api, access = self.api, self.client.access
        if api.key in self.features.refused_apis or (
            api.protocol is not None
            and api.protocol not in self.config.get_list(REBALANCE_PROTOCOLS)
        ):
            return ErrorCode.UNSUPPORTED_VERSION
        if access.is_limited:
            access.request = api.name
            for rule in api.wholes:
                code = _check(rule, access, request)
                if code:
                    return code
        return ErrorCode.NONE


# Looked up in the broker, so that they cost a request nothing that does not ask for them.
for _name in (*Services.__annotations__, *vars(Services)):
    if not _name.startswith("_"):
        setattr(Call, _name, property(attrgetter(f"services.{_name}")))


def _check(rule: Whole, access: Access, request: Any) -> ErrorCode:
    """Return the error of a request that is refused as a whole, else NONE."""
    names = [name for name in rule.names(request) if name is not None]
    last = rule.alternatives[-1]
    for need in rule.alternatives:
        refused = [
            name for name in names if not access.allows(*need, name, is_audited=need == last)
        ]
        if not refused:
            return ErrorCode.NONE
    return ERROR_OF[last[1]]


# From bytes to bytes ------------------------------------------------------------------------------


async def serve(
    call: Call, frame: memoryview, header: RequestHeader
) -> tuple[list[Piece] | None, Any]:
    """Serve a request; return the frame of its answer, as pieces to send, and the response. The
    pieces are None where a request has no answer.

    :raises BadFrame: the bytes are no request: the connection is to be closed
    :raises CloseConnection: the protocol has no response
    """
    api = call.api
    try:
        is_small = len(frame) <= (RECEIVE_BUFFER_BYTES if api.is_quick else SLICED_REQUEST_BYTES)
        if is_small:
            request = wire.read_request(api, frame, header)
        else:
            request = await call.in_slices(wire.read_request_sliced(api, frame, header))
    except NullArray as error:
        return _null_refused(call, error, frame, header)
    call.request = request
    try:
        code = call.refusal(request)
        if not code:
            response = await api.handle(call, request)
    except (BadFrame, CloseConnection):
        raise
    except Exception as error:
        code = failure(call, request, error)
    if code:
        response = await call.in_slices(api.refusing(request, code))
    if response is None:
        return None, None
    # A call that has paused goes on so, as does one that makes items while they are written.
    if call.is_long:
        steps = wire.write_response_sliced(api, header, response)
        return await call.in_slices(steps), response
    return wire.write_response(api, header, response), response


def failure(call: Call, request: Any, error: Exception) -> ErrorCode:
    """Log that a handler has raised; return the error of its response."""
    api, host = call.api, call.client.address
    call.services.metrics.requests[api.key].failures += 1
    if isinstance(error, StorageError):
        log.error(host, "%s of client %s at %s: %s", api.name, call.client_id, host, error)
        return api.storage_error
    log.error(
        host,
        "%s v%d of client %s at %s failed: %s",
        api.name,
        call.version,
        call.client_id,
        host,
        request.summary(),
        exc_info=error,
    )
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _null_refused(
    call: Call, error: NullArray, frame: memoryview, header: RequestHeader
) -> tuple[list[Piece], Any]:
    """Return INVALID_REQUEST for a request with a null that its schema does not allow.

    :raises BadFrame: the response has no place for an error
    """
    api, host = call.api, call.client.address
    request = wire.read_request(api, frame, header, allow_nulls=True)
    message = f"{api.request.name} v{header.api_version}: {error}"
    if getattr(request, "acks", None) == 0:  # Produce without an answer
        raise BadFrame(message)
    response, without_error = (
        run_now(refusing_all(request, api.response, code))
        for code in (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    )
    pieces = wire.write_response(api, header, response)
    if pieces == wire.write_response(api, header, without_error):
        raise BadFrame(message)
    log.warning(host, "refusing a request from %s: %s", host, message)
    return pieces, response
