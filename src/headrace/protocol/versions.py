"""Conversion of requests to the latest version, and of responses to the client's version.

Handlers take and return messages of the latest version. Only this module knows the differences.
Most versions differ in added fields: such a field gets its default value in an older request, and
the writer of the older response omits it. The other differences have one function each: topic names
instead of topic ids (KIP-516), and one group, coordinator, member or topic list instead of several.
"""

from __future__ import annotations

import dataclasses
import types
import typing
import uuid
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from headrace.errors import ErrorCode
from headrace.protocol.time_slices import run_now

from .large_responses import LazyArray, lazy_map
from .messages import Codec, codec
from .writer import nested_type

ToResponse = Callable[[Any], Any]


class TopicNames(typing.Protocol):
    """Topics by name and by id, as the catalog keeps them."""

    @property
    def topics(self) -> Mapping[str, Any]: ...
    @property
    def topics_by_id(self) -> Mapping[uuid.UUID, Any]: ...


class Adapted(NamedTuple):
    """A request in the latest version.

    :param request: the request in the latest version's class
    :param legacy: values without a field in the latest version (``retention_time`` of OffsetCommit
        2-4, ``topic_ids`` of Fetch 4-12)
    :param to_response: converts a response for the older version's writer
    :param topic_ids: the ids for the topic names of the request; None if it has none, or ids
    """

    request: Any
    legacy: Mapping[str, Any]
    to_response: ToResponse
    topic_ids: TopicIds | None = None


_NOTHING: Mapping[str, Any] = types.MappingProxyType({})


def _unchanged(response: Any) -> Any:
    return response


def adapt(request: Any, old: Codec, latest_version: int, catalog: TopicNames) -> Adapted:
    """Upgrade ``request``, read by the codec ``old``, to ``latest_version``."""
    if old.version == latest_version:
        return Adapted(request, _NOTHING, _unchanged)
    latest = codec(old.api_key, latest_version)
    special = _SPECIAL.get(old.api_key)
    if special is not None and old.version < special.until:
        return special.adapt(request, old, latest, catalog)
    return Adapted(reshape(request, latest.request_type), _NOTHING, _unchanged)


def adapt_sliced(
    request: Any, old: Codec, latest_version: int, catalog: TopicNames
) -> Generator[None, None, Adapted]:
    """Return a generator that upgrades a large request as :func:`adapt` does, and yields between
    the items of its arrays.
    """
    if old.version == latest_version:
        return Adapted(request, _NOTHING, _unchanged)
    latest = codec(old.api_key, latest_version)
    special = _SPECIAL.get(old.api_key)
    if special is None or old.version >= special.until:
        upgraded = yield from _reshape_sliced(request, latest.request_type)
        return Adapted(upgraded, _NOTHING, _unchanged)
    if special.adapt is _offset_fetch:
        return (yield from _offset_fetch_sliced(request, old, latest, catalog))
    return special.adapt(request, old, latest, catalog)


# --------------------------------------------------------------------------------------------------
# Fields that were added


class _Field(NamedTuple):
    name: str
    present: bool
    default: Any
    nested: type | None
    many: bool


def reshape(value: Any, new_type: Any, **given: Any) -> Any:
    """Return ``value`` as ``new_type``.

    Keep fields with the same name, reshape nested ones, and set missing ones to their default.

    :param given: field values to use instead of those of ``value``
    """
    old_type: Any = type(value)
    plan = _plan(old_type, new_type)
    if plan is None and not given:
        return value
    fields = {}
    for field in plan or _full_plan(old_type, new_type):
        if field.name in given:
            fields[field.name] = given[field.name]
        elif not field.present:
            fields[field.name] = field.default
        else:
            inner = getattr(value, field.name)
            if field.nested is not None and inner is not None:
                nested = field.nested
                inner = (
                    tuple(reshape(one, nested) for one in inner)
                    if field.many
                    else reshape(inner, nested)
                )
            fields[field.name] = inner
    return new_type(**fields)


def _reshape_sliced(value: Any, new_type: Any) -> Generator[None, None, Any]:
    """Reshape a message as :func:`reshape` does; yield after each item of its arrays."""
    given: dict[str, Any] = {}
    old_type: Any = type(value)
    for field in _plan(old_type, new_type) or ():
        inner = getattr(value, field.name) if field.present and field.many else None
        if inner is None or field.nested is None:
            continue
        items = []
        for one in inner:
            items.append((yield from _reshape_sliced(one, field.nested)))
            yield
        given[field.name] = tuple(items)
    return reshape(value, new_type, **given)


@cache
def _plan(old_type: Any, new_type: Any) -> tuple[_Field, ...] | None:
    """Return how to fill each field; None when an instance of the old class can be used."""
    plan = _full_plan(old_type, new_type)
    return plan if any(not field.present or field.nested is not None for field in plan) else None


@cache
def _full_plan(old_type: Any, new_type: Any) -> tuple[_Field, ...]:
    old_fields = {field.name for field in dataclasses.fields(old_type)}
    old_hints, new_hints = typing.get_type_hints(old_type), typing.get_type_hints(new_type)
    plan = []
    for field in dataclasses.fields(new_type):
        present = field.name in old_fields
        nested, many = nested_type(new_hints[field.name])
        if (
            present
            and nested is not None
            and _plan(nested_type(old_hints[field.name])[0], nested) is None
        ):
            nested = None
        default = (
            field.default
            if field.default is not dataclasses.MISSING
            else ABSENT[field_kind(field, many)]
        )
        plan.append(_Field(field.name, present, default, nested if present else None, many))
    return tuple(plan)


def field_kind(field: dataclasses.Field[Any], many: bool) -> str:
    """Return the key of a field's type in :data:`ABSENT`."""
    return "array" if many else str(field.metadata.get("kafka_type", "struct"))


ABSENT: Mapping[str, Any] = {
    "array": (),
    "struct": None,
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
}

# --------------------------------------------------------------------------------------------------
# Topic names instead of topic ids


class TopicIds:
    """The topic ids for the topic names in one request.

    An unknown name gets an unused id.

    :ivar has_unknown: True if a name was unknown
    """

    def __init__(self, catalog: TopicNames) -> None:
        self.has_unknown = False
        self._catalog = catalog
        self._names: dict[uuid.UUID, str] = {}

    def id_of(self, name: str) -> uuid.UUID:
        """Return the id for a name, and remember the name for the response."""
        topic = self._catalog.topics.get(name)
        topic_id: uuid.UUID
        if topic is None:
            topic_id = uuid.uuid5(uuid.NAMESPACE_URL, name)
            self.has_unknown = True
        else:
            topic_id = topic.topic_id
        self._names[topic_id] = name
        return topic_id

    def known_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name for an id in this request, None for an id that it does not have."""
        return self._names.get(topic_id)

    def name_of(self, topic_id: uuid.UUID) -> str:
        """Return the name for an id."""
        name = self._names.get(topic_id)
        return str(self._catalog.topics_by_id[topic_id].name) if name is None else name

    def upgrade(self, topics: Any, new_type: Any) -> Any:
        """Replace topic names by ids in an array of topics; None (all topics) stays None."""
        return run_now(self.upgrade_sliced(topics, new_type))

    def upgrade_sliced(self, topics: Any, new_type: Any) -> Generator[None, None, Any]:
        """Do the work of :meth:`upgrade`; yield after each topic."""
        if topics is None:
            return None
        name_field = "name" if topics and hasattr(topics[0], "name") else "topic"
        upgraded = []
        for one in topics:
            upgraded.append(reshape(one, new_type, topic_id=self.id_of(getattr(one, name_field))))
            yield
        return tuple(upgraded)

    def downgrade(self, topics: Any, old_type: Any, unknown: ErrorCode) -> Any:
        """Replace topic ids by names in an array of topics.

        :param unknown: the error that replaces UNKNOWN_TOPIC_ID
        """
        name_field, partitions_field = _topic_fields(old_type)

        def named(one: Any) -> Any:
            partitions = getattr(one, partitions_field)
            # partitions that are made when they are written are of a topic that exists
            if not isinstance(partitions, LazyArray) and any(
                partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID for partition in partitions
            ):
                partitions = tuple(
                    _Replaced(partition, error_code=unknown)
                    if partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
                    else partition
                    for partition in partitions
                )
            return old_type(
                **{name_field: self.name_of(one.topic_id), partitions_field: partitions}
            )

        return lazy_map(named, topics)


@cache
def _topic_fields(topic_type: Any) -> tuple[str, str]:
    """Return the field names of a topic's name and its partitions."""
    name, partitions, *_ = (field.name for field in dataclasses.fields(topic_type))
    assert name in ("name", "topic"), topic_type
    return name, partitions


@cache
def _topic_type(message_type: Any, *path: str) -> Any:
    """Return the class of the topics at ``path`` inside a message class."""
    for name in path:
        message_type = nested_type(typing.get_type_hints(message_type)[name])[0]
    return message_type


class _Replaced:
    """A response with some fields replaced. Writers read its fields by name."""

    def __init__(self, response: Any, **fields: Any) -> None:
        self._response = response
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)


# --------------------------------------------------------------------------------------------------
# One group, coordinator or member instead of several


def _offset_fetch(request: Any, old: Codec, latest: Codec, catalog: TopicNames) -> Adapted:
    """Upgrade versions 1-7, for one group, and 1-9, with topic names. The response has offset -1
    and no error for an unknown topic.
    """
    return run_now(_offset_fetch_sliced(request, old, latest, catalog))


def _offset_fetch_sliced(
    request: Any, old: Codec, latest: Codec, catalog: TopicNames
) -> Generator[None, None, Adapted]:
    """Do the work of :func:`_offset_fetch`; yield between topics and groups."""
    ids = TopicIds(catalog)
    group_type = _topic_type(latest.request_type, "groups")
    topic_type = _topic_type(latest.request_type, "groups", "topics")
    single = old.version < 8
    asked = (request,) if single else request.groups
    upgraded = []
    for group in asked:
        topics = yield from ids.upgrade_sliced(group.topics, topic_type)
        upgraded.append(reshape(group, group_type, topics=topics, group_id=group.group_id))
        yield
    groups = tuple(upgraded)
    topics_path = ("topics",) if single else ("groups", "topics")
    old_topic_type = _topic_type(old.response_type, *topics_path)

    def to_response(response: Any) -> Any:
        named = lazy_map(
            lambda group: _Replaced(
                group, topics=ids.downgrade(group.topics, old_topic_type, ErrorCode.NONE)
            ),
            response.groups,
        )
        if not single:
            return _Replaced(response, groups=named)
        (only,) = named
        topics = only.topics
        if old.version < 2 and only.error_code:  # version 1 has error codes only in partitions
            topics = ids.downgrade(
                _failed(groups[0].topics, only.error_code), old_topic_type, only.error_code
            )
        return _Replaced(response, topics=topics, error_code=only.error_code)

    upgraded_request = reshape(request, latest.request_type, groups=groups)
    return Adapted(upgraded_request, _NOTHING, to_response, ids)


def _failed(topics: Any, error_code: ErrorCode) -> Any:
    """Return all requested partitions of an OffsetFetch with ``error_code``."""
    return [
        types.SimpleNamespace(
            topic_id=topic.topic_id,
            partitions=tuple(
                types.SimpleNamespace(
                    partition_index=index,
                    committed_offset=-1,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=error_code,
                )
                for index in topic.partition_indexes
            ),
        )
        for topic in topics or ()
    ]


def _find_coordinator(request: Any, old: Codec, latest: Codec, catalog: TopicNames) -> Adapted:
    """Upgrade versions 0-3, for one key."""
    latest_request = reshape(request, latest.request_type, coordinator_keys=(request.key,))

    def to_response(response: Any) -> Any:
        only = response.coordinators[0]
        return _Replaced(
            response,
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    return Adapted(latest_request, _NOTHING, to_response)


def _leave_group(request: Any, old: Codec, latest: Codec, catalog: TopicNames) -> Adapted:
    """Upgrade versions 0-2, for one member; its error is the top-level error."""
    member_type = _topic_type(latest.request_type, "members")
    members = (member_type(member_id=request.member_id),)

    def to_response(response: Any) -> Any:
        error = response.error_code
        if not error and response.members:
            error = response.members[0].error_code
        return _Replaced(response, error_code=error)

    return Adapted(reshape(request, latest.request_type, members=members), _NOTHING, to_response)


def _join_group(request: Any, old: Codec, latest: Codec, catalog: TopicNames) -> Adapted:
    """Upgrade version 0, whose session timeout is also the rebalance timeout. Before version 7 a
    protocol name cannot be null.
    """
    given = {"rebalance_timeout": request.session_timeout} if old.version == 0 else {}

    def to_response(response: Any) -> Any:
        return _Replaced(response, protocol_name=response.protocol_name or "")

    return Adapted(reshape(request, latest.request_type, **given), _NOTHING, to_response)


class _Special(NamedTuple):
    until: int
    """The first version that needs no conversion function."""
    adapt: Callable[[Any, Codec, Codec, TopicNames], Adapted]


_SPECIAL: Mapping[int, _Special] = {
    9: _Special(10, _offset_fetch),
    10: _Special(4, _find_coordinator),
    11: _Special(7, _join_group),
    13: _Special(3, _leave_group),
}
