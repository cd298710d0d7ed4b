"""The declaration at the head of a handler: what the road to it must know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.request_templates import MakeTemplate
from headrace.protocol.schema import Versions, schema_of, snake_case, versions_of
from headrace.protocol.time_slices import run_now

from .audit import Change, audited
from .refusals import refusing_all
from .rules import MESSAGES, Each, Rules, Whole

if TYPE_CHECKING:
    from headrace.topics.settings import Settings

Handle: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""``handle(call, request)``: returns the response to a :class:`~headrace.net.call.Call`."""
Refuse: TypeAlias = Callable[[Any, ErrorCode], Any]
"""``refuse(request, code)``: returns the response to a request that is refused as a whole."""
Changes: TypeAlias = Callable[[Any, Any], Iterator[Change]]
"""``changes(request, response)``: yields what an administrator's request has changed."""


REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
CONSUMER, STREAMS = "consumer", "streams"
"""The protocols of groups that a broker may have disabled. The classic one cannot be; share groups
are served whether they are listed or not, as in Apache Kafka.
"""


class Api:
    """A served API. Its versions are those of Kafka's definitions.

    :param key: its API key
    :param rules: the permissions that it requires, in the order in which they are checked
    :param is_quick: its requests take little time and never wait in line
    :param protocol: the protocol of groups without which the API is refused, before permissions are
        checked
    :param storage_error: the error after a failed write. Coordinators return NOT_COORDINATOR, as
        Kafka's do: clients find the coordinator again and retry
    :param refuse: makes the response to a request that is refused as a whole; None for one with the
        error in every place that it has for errors
    :param has_one_error: the response to such a request has its error at the top, and no items
    :param has_message: it has Kafka's message for the error, too
    :param changes: tells what is logged of it, see :mod:`.audit`
    :param unserved: makes the response, in version 0, to a version that is not served; None to
        close the connection
    :param template: makes a template of a request that was served (docs/decisions/0009)
    :ivar handle: the function that serves it, set by the registry
    """

    handle: Handle

    def __init__(
        self,
        key: int,
        *rules: Any,
        is_quick: bool = False,
        protocol: str | None = None,
        storage_error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR,
        refuse: Refuse | None = None,
        has_one_error: bool = False,
        has_message: bool = False,
        changes: Changes | None = None,
        unserved: Callable[[Any], Any] | None = None,
        template: MakeTemplate | None = None,
    ) -> None:
        self.key = key
        self.rules: Rules = rules
        self.is_quick = is_quick
        self.protocol, self.storage_error = protocol, storage_error
        self.changes = changes
        self.unserved = unserved
        self.template = template
        self.request, self.response = schema_of("request", key), schema_of("response", key)
        self.lowest, self.highest = self.request.versions
        self.wholes = tuple(rule for rule in rules if isinstance(rule, Whole))
        self._refuse = refuse
        self._has_one_error, self._has_message = has_one_error, has_message

    @cached_property
    def name(self) -> str:
        """Its name in the log: ``share_fetch``."""
        return snake_case(self.request.name.removesuffix("Request"))

    @cached_property
    def each(self) -> Each:
        """The permission that each item of its request needs."""
        (rule,) = (rule for rule in self.rules if isinstance(rule, Each))
        return rule

    def refused(self, request: Any, code: ErrorCode) -> Any:
        """Return the response to a request that is refused as a whole."""
        return run_now(self.refusing(request, code))

    def refusing(self, request: Any, code: ErrorCode) -> Generator[None, None, Any]:
        """Do what :meth:`refused` does, in steps: yield between the items of its arrays."""
        if self._refuse is not None:
            return self._refuse(request, code)
        message = MESSAGES.get(code) if self._has_message else None
        items = None if self._has_one_error else request
        return (yield from refusing_all(items, self.response, code, message))


class Apis(Mapping[int, Api]):
    """All served APIs by key. A module is imported with the first request of its API, so that the
    broker starts quickly.

    :param modules: the names of their modules
    :ivar quick: the keys of the imported APIs whose requests never wait in line
    """

    def __init__(self, modules: Mapping[int, str]) -> None:
        self._modules = modules
        self._imported: dict[int, Api] = {}
        self.quick: set[int] = set()

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, api_key: object) -> bool:
        return api_key in self._modules

    def __getitem__(self, api_key: int) -> Api:
        try:
            return self._imported[api_key]
        except KeyError:
            module = import_module(self._modules[api_key])
        api: Api = module.API
        api.handle = module.handle
        if api.changes is not None:
            api.handle = audited(api.name, api.changes, module.handle)
        self._imported[api_key] = api
        if api.is_quick:
            self.quick.add(api_key)
        return api


def stub(key: int, *rules: Any, error: Refusal, protocol: str | None = None) -> tuple[Api, Handle]:
    """Return an API that refuses every request, and its handler."""
    api = Api(key, *rules, protocol=protocol)

    async def handle(call: Any, request: Any) -> Any:
        response = api.response.message_type()
        response.error_code = error.code
        if error.message is not None:
            response.error_message = error.message
        return response

    return api, handle


def served_versions(api_key: int, config: Settings) -> Versions:
    """Return the versions of an API that a broker with this config serves.

    :raises KeyError: Kafka has no such API
    """
    versions = versions_of("request", api_key)
    if api_key in _UNSTABLE and not config.get_bool("unstable.api.versions.enable"):
        return versions._replace(last=versions.last - 1)
    return versions


_INIT_PRODUCER_ID = 22
_UNSTABLE = frozenset((_INIT_PRODUCER_ID,))
"""APIs whose highest version is served only with ``unstable.api.versions.enable``."""
