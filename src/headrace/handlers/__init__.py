"""The registry of APIs: versions, handler and permissions by API key. ApiVersions lists it.

Each API is one module, ``api_NN_name.py``, with a function ``handle(broker, request, context)``. It
takes a request in the shape of the latest version, and returns the response in that shape, or a
:class:`~headrace.coordinators.runtime.Deferred` or awaitable of it. A module is imported with the
first request of its API, so that the broker starts quickly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

from headrace.broker.config.broker_config import Config
from headrace.broker.limits import MAX_COMMIT_TEMPLATES, MAX_PRODUCE_TEMPLATES
from headrace.errors import ErrorCode
from headrace.net.rules import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Rules,
    each,
    inside,
    on,
)
from headrace.protocol.request_templates import RequestTemplates

Handle = Callable[..., Any | Awaitable[Any]]


class Api(NamedTuple):
    """A served API: its versions, and the permissions that it requires.

    :ivar rules: the permissions, in the order in which they are checked
    :ivar protocol: the protocol of groups without which the handler refuses the API; it refuses
        before permissions are checked
    :ivar advertised_from: the lowest version in the response to ApiVersions, if that is not the
        lowest served one
    :ivar unstable: the highest version is served only with ``unstable.api.versions.enable``
    """

    key: int
    name: str
    lowest: int
    highest: int
    rules: Rules
    protocol: str | None = None
    advertised_from: int | None = None
    unstable: bool = False

    @property
    def module(self) -> str:
        """The full name of the handler's module."""
        return f"{__name__}.api_{self.key:02}_{self.name}"

    def served_to(self, config: Config) -> int:
        """Return the highest version that a broker with this config serves."""
        if self.unstable and not config.get_bool("unstable.api.versions.enable"):
            return self.highest - 1
        return self.highest

    @property
    def storage_error(self) -> ErrorCode:
        """The error code after a failed disk write.

        Coordinators return NOT_COORDINATOR, as Kafka's do: clients find the coordinator again and
        retry.
        """
        if self.key in _COORDINATOR_WRITES:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.KAFKA_STORAGE_ERROR


_COORDINATOR_WRITES = frozenset((8, 11, 12, 13, 14, 28, 42, 47, 83, 84, 85, 86, 91, 92))
"""APIs that write to the internal topic of a coordinator."""


_LEFT_OUT = "left out of the answer"
_PARTITIONS = "TOPIC_AUTHORIZATION_FAILED for its partitions"

_OLD: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(
            8,
            "offset_commit",
            2,
            10,
            (on(READ, GROUP, "group_id"), each(READ, TOPIC, "topics", "topic_id")),
        ),
        Api(
            9,
            "offset_fetch",
            1,
            10,
            (
                inside(DESCRIBE, GROUP, "refused for the group"),
                inside(DESCRIBE, TOPIC, f"{_PARTITIONS}; {_LEFT_OUT} if it is not named"),
            ),
        ),
        Api(
            10,
            "find_coordinator",
            0,
            6,
            (
                inside(DESCRIBE, GROUP, "refused for the key of a group"),
                inside(DESCRIBE, TRANSACTIONAL_ID, "refused for the key"),
                inside(CLUSTER_ACTION, CLUSTER, "refused for the key of a share-partition"),
            ),
        ),
        Api(11, "join_group", 0, 9, (on(READ, GROUP, "group_id"),)),
        Api(13, "leave_group", 0, 5, (on(READ, GROUP, "group_id"),)),
        Api(14, "sync_group", 0, 5, (inside(READ, GROUP, "refused as a whole"),)),
        Api(15, "describe_groups", 0, 6, (each(DESCRIBE, GROUP, "groups"),)),
        Api(
            16,
            "list_groups",
            0,
            5,
            (
                inside(DESCRIBE, CLUSTER, "DESCRIBE on each group is needed"),
                inside(DESCRIBE, GROUP, _LEFT_OUT),
            ),
        ),
        Api(
            28,
            "txn_offset_commit",
            0,
            6,
            (
                on(WRITE, TRANSACTIONAL_ID, "transactional_id"),
                on(READ, GROUP, "group_id"),
                each(READ, TOPIC, "topics", "topic_id"),
            ),
        ),
        Api(42, "delete_groups", 0, 3, (each(DELETE, GROUP, "groups_names"),)),
    )
}


class Templated(NamedTuple):
    """An API whose requests are served by template.

    :ivar module: has ``make_template(broker, frame, header, request)``, and
        ``is_allowed(broker, request, context)``, which returns whether a request has all
        permissions; they hold for all requests of its template until ACLs change
    """

    module: str
    max_templates: int


TEMPLATED: Mapping[int, Templated] = {
    0: Templated("produce_templates", MAX_PRODUCE_TEMPLATES),
    8: Templated("commit_templates", MAX_COMMIT_TEMPLATES),
}


def request_templates(api_key: int, broker: Any) -> RequestTemplates:
    """Return the templates of a new connection for an API in :data:`TEMPLATED`."""
    module, max_templates = TEMPLATED[api_key]
    make_template = import_module(f"{__name__}.{module}").make_template
    return RequestTemplates(partial(make_template, broker), max_templates)


ADMINISTRATIVE = frozenset((42,))
"""APIs whose changes are logged, see :mod:`.audit`."""


def allows_template(api_key: int, broker: Any, context: Any, request: Any) -> bool:
    """Return whether a client has all permissions for a request of an API in :data:`TEMPLATED`."""
    module, _ = TEMPLATED[api_key]
    allows: bool = import_module(f"{__name__}.{module}").is_allowed(broker, request, context)
    return allows


@cache
def handler(api_key: int) -> Handle:
    """Return the function that serves an API of :data:`APIS`."""
    handle: Handle = import_module(APIS[api_key].module).handle
    if api_key in ADMINISTRATIVE:
        api = APIS[api_key]
        handle = import_module("headrace.net.audit").step(api.name, api_key, handle)
    return handle


_MODULES = {
    int(module.name[4:6]): f"{__name__}.{module.name}"
    for module in iter_modules(__path__)
    if module.name.startswith("api_")
}
"""The modules of all APIs."""


class _Apis(Mapping[int, Any]):
    """All served APIs by key; an API is imported when it is first needed."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(_MODULES))

    def __len__(self) -> int:
        return len(_MODULES)

    def __contains__(self, api_key: object) -> bool:
        return api_key in _MODULES

    def __getitem__(self, api_key: int) -> Any:
        if api_key in _OLD:
            return _OLD[api_key]
        return import_module(_MODULES[api_key]).API


APIS = _Apis()


class Served(NamedTuple):
    """An API and the function that serves it."""

    api: Any
    handle: Handle


@cache
def served(api_key: int) -> Served | None:
    """Return an API whose handler is a coroutine of a call; None for others."""
    if api_key in _OLD:
        return None
    module = import_module(_MODULES[api_key])
    return Served(module.API, module.handle)


@cache
def authorized(api_key: int) -> Handle:
    """Return the function that serves an API of :data:`APIS` after the step *authorize*."""
    step: Handle = import_module(f"{__name__}.authorization").step(APIS[api_key])
    return step


def handler_unless(refused: Container[int], find: Callable[[int], Handle], api_key: int) -> Handle:
    """Return the function that serves an API of :data:`APIS`, or refuses it.

    :param refused: the APIs to refuse
    :param find: :func:`handler` or :func:`authorized`
    """
    if api_key not in refused:
        return find(api_key)
    refuse: Handle = import_module(f"{__name__}.refused").handle
    return refuse
