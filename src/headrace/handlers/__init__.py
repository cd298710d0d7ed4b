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
from headrace.broker.limits import MAX_PRODUCE_TEMPLATES
from headrace.errors import ErrorCode
from headrace.net.rules import Rules
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


_COORDINATOR_WRITES: frozenset[int] = frozenset()
"""APIs that write to the internal topic of a coordinator."""


_OLD: Mapping[int, Api] = {}


def produce_templates(broker: Any) -> RequestTemplates:
    """Return the templates of the Produce requests of a new connection."""
    make_template = import_module(f"{__name__}.produce_templates").make_template
    return RequestTemplates(partial(make_template, broker), MAX_PRODUCE_TEMPLATES)


ADMINISTRATIVE: frozenset[int] = frozenset()
"""APIs whose changes are logged, see :mod:`.audit`."""


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
