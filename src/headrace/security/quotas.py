"""Client quotas: limits of the rates of users, client ids and addresses, and what each has used.

A pure machine: the time is an argument, throttle times come out. Precedence and arithmetic are
those of Apache Kafka's ``ClientQuotaManager`` (docs/behaviour/security.md).

Clients share a *sensor* when they share a limit: without a limit for a client id, all clients of a
user have one. A sensor whose values have no effect any more is deleted, as a new one would measure
the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from .quota_entities import CLIENT_ID, CONNECTION, IP, MUTATION, USER, Entity
from .rates import Rate, TokenBucket, Windows

MAX_QUOTA_SENSORS = 100_000
"""The users, client ids and addresses whose use of a quota is remembered; one more forgets the one
that was not used for longest. Those that have used nothing within the windows of quotas are
forgotten anyway. Each takes about 700 bytes.
"""

MAX_SENSOR_NAME_LENGTH = 249
"""The characters of a user or client id that tell it apart from others with the same default quota.
Clients may send ids of 32,767 characters.
"""

_EXPIRED_AT_A_TIME = 2
"""The sensors that are looked at with each charge, those not used for longest."""


class Limit(NamedTuple):
    """A limit of a client.

    :ivar value: per second
    :ivar user: the user of its sensor, "" for one of all users
    :ivar client_id: the client id, or the address, of its sensor, "" for one of all
    """

    value: float
    user: str
    client_id: str


_SensorKey = tuple[str, str, str]


class ClientQuotas:
    """The quotas of a broker, and the sensors of its clients.

    :param windows: of all rates but that of controller mutations
    :param mutation_windows: of controller mutations
    :ivar entities: the quotas by entity
    :ivar hosts: the names of entities of type ip that are no address as sockets write it, by such
        an address
    """

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.windows = windows
        self._mutation_windows = mutation_windows
        self.entities: dict[Entity, dict[str, float]] = {}
        self.hosts: dict[str, str] = {}
        self._by_key: dict[str, dict[Entity, float]] = {}
        self._sensors: OrderedDict[_SensorKey, Rate | TokenBucket] = OrderedDict()
        """In the order of their last use."""

    def __len__(self) -> int:
        """Return the number of sensors."""
        return len(self._sensors)

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity; None removes one. What clients have used stays."""
        values = self.entities.setdefault(entity, {})
        for key, value in changes.items():
            of_key = self._by_key.setdefault(key, {})
            if value is None:
                values.pop(key, None)
                of_key.pop(entity, None)
            else:
                values[key] = of_key[entity] = value
            if not of_key:
                del self._by_key[key]
                for name in [name for name in self._sensors if name[0] == key]:
                    del self._sensors[name]
        if not values:
            del self.entities[entity]

    def limit_of(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client, None without one.

        :param key: not :data:`~headrace.security.quota_entities.CONNECTION`
        :param client_id: "" without one; such clients have the limits of their user
        """
        quotas = self._by_key.get(key)
        if quotas is None:
            return None
        # Without a client id only the quotas of users hold.
        client_ids = _parts(CLIENT_ID, client_id) if client_id else (_NO_PART,)
        for user_part, user_sensor in _parts(USER, user):
            for client_id_part, client_id_sensor in client_ids:
                value = quotas.get(client_id_part + user_part)
                if value is not None:
                    return Limit(value, user_sensor, client_id_sensor)
        return None

    def limit_of_address(self, address: str) -> Limit | None:
        """Return the limit of the connections of an address, None without one."""
        quotas = self._by_key.get(CONNECTION)
        if quotas is None:
            return None
        name = self.hosts.get(address, address)
        value = quotas.get(((IP, name),), quotas.get(((IP, None),)))
        return None if value is None else Limit(value, "", address)

    def charge(self, key: str, limit: Limit, value: float, now_ms: int) -> int:
        """Record what a client used, and return the throttle time in milliseconds."""
        return self._sensor(key, limit, now_ms).charge(value, limit.value, now_ms)

    def take_back(self, key: str, limit: Limit, value: float, now_ms: int) -> None:
        """Undo a :meth:`charge` of a rate, for something that is not sent, or not accepted."""
        sensor = self._sensor(key, limit, now_ms)
        assert isinstance(sensor, Rate), key
        sensor.record(-value, now_ms)

    def wait_ms(self, limit: Limit, now_ms: int) -> int:
        """Return how long a client has to wait before the next controller mutation."""
        sensor = self._sensor(MUTATION, limit, now_ms)
        assert isinstance(sensor, TokenBucket)
        return sensor.wait_ms(limit.value, now_ms)

    def most_bytes(self, limit: Limit) -> int:
        """Return the most bytes that a client can fetch at once within its limit."""
        seconds = (self.windows.samples - 1) * self.windows.size_ms / 1000
        return int(min(limit.value * seconds, float(1 << 31)))

    def _sensor(self, key: str, limit: Limit, now_ms: int) -> Rate | TokenBucket:
        sensors, name = self._sensors, (key, limit.user, limit.client_id)
        sensor = sensors.get(name)
        if sensor is None:
            sensor = TokenBucket(self._mutation_windows) if key == MUTATION else Rate(self.windows)
            sensors[name] = sensor
        else:
            sensors.move_to_end(name)
        self._expire(sensor, now_ms)
        return sensor

    def _expire(self, used: Rate | TokenBucket, now_ms: int) -> None:
        """Delete sensors that have no effect, and the oldest ones if there are too many.

        :param used: the sensor that is used now
        """
        sensors = self._sensors
        for _ in range(_EXPIRED_AT_A_TIME):
            name, sensor = next(iter(sensors.items()))
            if sensor is used:
                return
            if len(sensors) > MAX_QUOTA_SENSORS or self._is_unused(name, sensor, now_ms):
                del sensors[name]
            elif isinstance(sensor, Rate):
                return
            else:  # a bucket may need long to be full
                sensors.move_to_end(name)

    def _is_unused(self, name: _SensorKey, sensor: Rate | TokenBucket, now_ms: int) -> bool:
        if isinstance(sensor, Rate):
            return sensor.is_idle(now_ms)
        limit = self.limit_of(*name)
        return limit is None or sensor.is_full(limit.value, now_ms)


_NO_PART: tuple[Entity, str] = (), ""


def _parts(kind: str, name: str) -> tuple[tuple[Entity, str], ...]:
    """Return the parts of the entities whose quota a client has, the first that there is, with the
    name of their sensor: "" where all clients have one.
    """
    named, default = ((kind, name),), ((kind, None),)
    return (named, name), (default, name[:MAX_SENSOR_NAME_LENGTH]), _NO_PART
