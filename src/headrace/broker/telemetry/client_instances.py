"""Client instances (KIP-714): what each is asked for, and when it may ask and push.

A client without a subscription is asked for no metrics; it asks again after the push interval. The
times are steady, in milliseconds.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.broker.config.client_metrics import CLIENT_INSTANCE_ID, Subscription
from headrace.broker.limits import CLIENT_INSTANCE_EXPIRY_MS, MAX_CLIENT_INSTANCES
from headrace.errors import ErrorCode
from headrace.protocol.checksum import crc32c
from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from headrace.uuid_text import uuid_text

ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""The compression types that clients are offered, the preferred one first."""

_KNOWN_CODECS = frozenset((NONE, *ACCEPTED_CODECS))
_ALL_METRICS = "*"
_DEFAULT_INTERVAL_MS = 300_000
_NEVER = -(1 << 62)
_LAST_RESERVED_ID = 1
"""Kafka's own: the ids 0 and 1 are no client's."""
_MAY_ASK_AT_ONCE = frozenset(
    (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
)
"""Errors of a push after which the client may ask for its subscription before the interval."""


class ClientInstance:
    """One running client, and its subscription.

    :ivar attributes: what subscriptions match, by name
    :ivar metrics: the prefixes of the metrics that it is asked for
    :ivar subscription_id: changes with the metrics and the interval
    :ivar version: the version of the subscriptions from which this was made
    :ivar last_error: the error of its last request
    :ivar is_terminating: its last push announced the end of the client
    """

    __slots__ = (
        "_asked_ms",
        "_pushed_ms",
        "attributes",
        "expires_ms",
        "instance_id",
        "is_terminating",
        "last_error",
        "metrics",
        "push_interval_ms",
        "subscription_id",
        "version",
    )

    def __init__(
        self,
        instance_id: uuid.UUID,
        attributes: Mapping[str, str],
        subscriptions: Iterable[Subscription],
        version: int,
    ) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.version = version
        mine = [one for one in subscriptions if one.is_for(attributes)]
        self.metrics = _requested(frozenset[str]().union(*(one.metrics for one in mine)))
        self.push_interval_ms = min((_DEFAULT_INTERVAL_MS, *(one.interval_ms for one in mine)))
        self.subscription_id = _subscription_id(self.metrics, self.push_interval_ms, instance_id)
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self._asked_ms = self._pushed_ms = _NEVER
        self.expires_ms = 0

    @property
    def expiry_ms(self) -> int:
        """The time for which the instance is remembered without a request."""
        return max(CLIENT_INSTANCE_EXPIRY_MS, 3 * self.push_interval_ms)

    def may_ask(self, now_ms: int) -> bool:
        """Return whether the instance may ask for its subscription now; remember that it did."""
        if now_ms - max(self._asked_ms, self._pushed_ms) >= self.push_interval_ms:
            self._asked_ms = now_ms
            return True
        return self.last_error in _MAY_ASK_AT_ONCE

    def may_push(self, now_ms: int) -> bool:
        """Return whether the instance may push now; remember that it did. The first push after a
        request for the subscription may come at any time.
        """
        if self._asked_ms <= self._pushed_ms and now_ms - self._pushed_ms < self.push_interval_ms:
            return False
        self._pushed_ms = now_ms
        return True


@lru_cache
def _requested(metrics: frozenset[str]) -> Sequence[str]:
    """Return the metrics that a client is asked for. Clients with equal subscriptions share it."""
    return (_ALL_METRICS,) if _ALL_METRICS in metrics else tuple(sorted(metrics))


def _subscription_id(metrics: Sequence[str], push_interval_ms: int, instance_id: uuid.UUID) -> int:
    """Return a number for a subscription of an instance: the checksum of its contents, combined
    with the instance id. It is a signed integer of 32 bits.
    """
    number = crc32c(f"{', '.join(metrics)} {push_interval_ms}".encode())
    high, low = instance_id.int >> 64, instance_id.int
    folded = (number ^ high ^ high >> 32 ^ low ^ low >> 32) & 0xFFFF_FFFF
    return folded - (folded >> 31 << 32)


class Push(NamedTuple):
    """The header of pushed metrics.

    :param codec: the compression type of the metrics
    :param size_bytes: the size of the compressed metrics
    """

    instance_id: uuid.UUID | None
    subscription_id: int
    is_terminating: bool
    codec: int
    size_bytes: int


class ClientInstances:
    """The client instances that are remembered.

    :param new_id: returns a random id
    :ivar throttled: requests that came before their time
    :ivar unknown_subscriptions: pushes with another subscription id than the instance's
    """

    def __init__(self, new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
        self._new_id = new_id
        self._instances: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()
        self._of_connection: dict[int, uuid.UUID] = {}
        self._subscriptions: Sequence[Subscription] = ()
        self._version = 0
        self.throttled = 0
        self.unknown_subscriptions = 0

    def __len__(self) -> int:
        return len(self._instances)

    def set_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """Replace the subscriptions. Each instance gets its new one with its next request."""
        self._subscriptions = subscriptions
        self._version += 1

    def ask(
        self,
        instance_id: uuid.UUID | None,
        attributes: Mapping[str, str],
        connection_id: int,
        now_ms: int,
    ) -> ClientInstance | ErrorCode:
        """Return an instance with its subscription, or the error of the request.

        :param instance_id: None for a new instance
        :param attributes: those of the client, without its instance id
        """
        if instance_id is None:
            instance_id = self._new_id()
        instance = self._instance(instance_id, attributes, connection_id, now_ms)
        if not instance.may_ask(now_ms):
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        push: Push,
        attributes: Mapping[str, str],
        connection_id: int,
        now_ms: int,
        max_bytes: int,
    ) -> ClientInstance | ErrorCode:
        """Return the instance whose push is valid, or the error of the request.

        :param attributes: those of the client, without its instance id
        :param max_bytes: the largest size of compressed metrics
        """
        if push.instance_id is None or push.instance_id.int <= _LAST_RESERVED_ID:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(push.instance_id, attributes, connection_id, now_ms)
        error = self._check(instance, push, now_ms, max_bytes)
        instance.is_terminating = push.is_terminating
        instance.last_error = error
        return error or instance

    def disconnected(self, connection_id: int) -> None:
        """Forget the instance that used a closed connection last."""
        instance_id = self._of_connection.pop(connection_id, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def _instance(
        self,
        instance_id: uuid.UUID,
        attributes: Mapping[str, str],
        connection_id: int,
        now_ms: int,
    ) -> ClientInstance:
        """Return an instance that is remembered, or a new one if there is none or the
        subscriptions have changed.
        """
        instances = self._instances
        instance = instances.get(instance_id)
        if instance is not None and instance.expires_ms <= now_ms:
            instance = None
        if instance is None or instance.version < self._version:
            known = (
                {**attributes, CLIENT_INSTANCE_ID: uuid_text(instance_id)}
                if instance is None
                else instance.attributes
            )
            instance = ClientInstance(instance_id, known, self._subscriptions, self._version)
            instances[instance_id] = instance
            self._of_connection[connection_id] = instance_id
            if len(instances) > MAX_CLIENT_INSTANCES:
                instances.popitem(last=False)
        instances.move_to_end(instance_id)
        instance.expires_ms = now_ms + instance.expiry_ms
        return instance

    def _check(
        self, instance: ClientInstance, push: Push, now_ms: int, max_bytes: int
    ) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not push.is_terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if push.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if push.codec not in _KNOWN_CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if push.size_bytes > max_bytes else ErrorCode.NONE
