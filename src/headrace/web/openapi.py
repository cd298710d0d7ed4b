"""The description of the JSON API: OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from headrace import __version__

from .views import GROUP_SORTS, TOPIC_SORTS

_NUMBER = {"type": ["number", "null"]}
_COUNT = {"type": ["integer", "null"]}
_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_FLAG = {"type": "boolean"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_BYTES = {
    "description": "A text if the bytes are UTF-8, else their base64; null if there are none.",
    "type": ["string", "object", "null"],
}
_RECORD = {
    "partition": {"type": "integer"},
    "offset": {"type": "integer"},
    "timestamp_ms": {"type": "integer"},
    "key": _BYTES,
    "value": _BYTES,
    "headers": _array({"type": "array"}),
    "value_bytes": {"type": "integer"},
    "is_cut": _FLAG,
}
_HEAD_OF_PAGE = {name: {"type": "integer"} for name in ("time_ms", "count", "page", "pages")}
SCHEMAS: dict[str, Any] = {
    "Error": _object(error=_TEXT),
    "Totals": _object(
        groups={"type": "integer"},
        topics={"type": "integer"},
        lag={"type": "integer"},
        time_lag_ms=_COUNT,
        consumed_per_s=_NUMBER,
        produced_per_s=_NUMBER,
    ),
    "Note": _object(
        kind={"enum": ["stalled", "letters", "idle", "growing"]}, group=_TEXT, text=_TEXT
    ),
    "Overview": _object(
        ready=_FLAG,
        problem=_TEXT_OR_NULL,
        time_ms={"type": "integer"},
        took_ms={"type": "integer"},
        cluster_id=_TEXT_OR_NULL,
        brokers={"type": "integer"},
        failed_logins={"type": "integer"},
        totals=_ref("Totals"),
        notes=_array(_ref("Note")),
        warnings=_array(_TEXT),
    ),
    "GroupSummary": _object(
        group=_TEXT,
        type={"enum": ["classic", "consumer", "share", "streams"]},
        state=_TEXT,
        members={"type": "integer"},
        lag=_COUNT,
        time_lag_ms=_COUNT,
        consumed_per_s=_NUMBER,
        produced_per_s=_NUMBER,
        seconds_to_zero={
            **_NUMBER,
            "description": "until what waits is finished; -1 if the lag does not shrink",
        },
    ),
    "Groups": _object(**_HEAD_OF_PAGE, groups=_array(_ref("GroupSummary"))),
    "Span": _object(
        first_offset={"type": "integer"},
        last_offset={"type": "integer"},
        state={"enum": ["available", "locked", "finished", "waiting"]},
        delivery_count={"type": "integer"},
        member_id=_TEXT_OR_NULL,
        remaining_ms=_COUNT,
    ),
    "GroupPartition": _object(
        topic=_TEXT,
        partition={"type": "integer"},
        start_offset=_COUNT,
        committed_offset=_COUNT,
        end_offset=_COUNT,
        lag=_COUNT,
        time_lag_ms=_COUNT,
        members=_array(_TEXT),
        released_count=_COUNT,
        archived_count=_COUNT,
        in_flight={
            "type": ["array", "null"],
            "items": _ref("Span"),
            "description": "the first spans; null if the broker does not tell",
        },
    ),
    "Member": _object(member_id=_TEXT, client_id=_TEXT, host=_TEXT, partitions={"type": "object"}),
    "Config": _object(name=_TEXT, value=_TEXT_OR_NULL, source=_TEXT, is_sensitive=_FLAG),
    "Group": _object(
        id=_TEXT,
        type=_TEXT,
        state=_TEXT,
        partition_count={"type": "integer"},
        tells_in_flight={"type": ["boolean", "null"]},
        partitions=_array(_ref("GroupPartition")),
        members=_array(_ref("Member")),
        configs={"type": ["array", "null"], "items": _ref("Config")},
        warnings=_array(_TEXT),
        summary={"oneOf": [_ref("GroupSummary"), {"type": "null"}]},
        dead_letter_queue=_TEXT_OR_NULL,
        history=_array({"type": "object"}),
    ),
    "TopicSummary": _object(
        name=_TEXT,
        partitions={"type": "integer"},
        is_internal=_FLAG,
        end_offsets=_COUNT,
        produced_per_s=_NUMBER,
        groups={"type": "integer"},
        dead_letters_of=_array(_TEXT),
    ),
    "Topics": _object(**_HEAD_OF_PAGE, topics=_array(_ref("TopicSummary"))),
    "TopicPartition": _object(
        partition={"type": "integer"},
        leader={"type": "integer"},
        replicas=_array({"type": "integer"}),
        in_sync=_array({"type": "integer"}),
        start_offset=_COUNT,
        end_offset=_COUNT,
    ),
    "Topic": _object(
        name=_TEXT,
        topic_id=_TEXT,
        is_internal=_FLAG,
        partition_count={"type": "integer"},
        partitions=_array(_ref("TopicPartition")),
        configs={"type": ["array", "null"], "items": _ref("Config")},
        groups=_array(_TEXT),
        warnings=_array(_TEXT),
    ),
    "Records": _object(
        records=_array(_object(**_RECORD)),
        compared={"type": "integer"},
        complete=_FLAG,
        next=_TEXT_OR_NULL,
        warnings=_array(_TEXT),
    ),
    "Record": _object(
        topic=_TEXT,
        **_RECORD,
        standing=_array(
            _object(
                group=_TEXT,
                kind={"enum": ["done", "held", "waiting", "available", "ahead", "dead", "unknown"]},
                text=_TEXT,
            )
        ),
    ),
}


SCHEMAS |= {
    "Plan": _object(
        title=_TEXT,
        changes=_array(_object(what=_TEXT, before=_TEXT, after=_TEXT)),
        cautions=_array(_TEXT),
        executed=_FLAG,
        outcome=_TEXT_OR_NULL,
    ),
    "Actions": _object(
        actions=_array(
            _object(
                time_ms={"type": "integer"},
                user=_TEXT,
                action=_TEXT,
                title=_TEXT,
                outcome=_TEXT,
                error=_TEXT_OR_NULL,
            )
        )
    ),
}

ACTIONS: Mapping[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "reset-offsets": (
        "Set the offsets of a group without members: to earliest, latest, offset or time",
        ("group", "to"),
        ("topic", "partition", "offset", "time"),
    ),
    "delete-offsets": (
        "Delete the offsets of a group without members in a topic",
        ("group", "topic"),
        (),
    ),
    "set-config": (
        "Change a setting of a group; without a value it gets its default",
        ("group", "name"),
        ("value",),
    ),
    "release": (
        "Release records that members of a share group hold (headrace only)",
        ("group", "topic", "partition", "first"),
        ("last",),
    ),
    "produce": (
        "Produce a record; headers are NAME=VALUE, one on a line",
        ("topic",),
        ("partition", "key", "value", "headers", "tombstone"),
    ),
    "redrive": (
        "Redrive the dead letters of a queue to their sources, at a rate in records a second",
        ("queue",),
        ("source", "group", "key", "rate", "max", "max_redrives"),
    ),
}
"""Action → summary, fields that it needs, other fields."""


def _parameter(
    name: str, text: str, schema: Mapping[str, Any] = _TEXT, *, needed: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": needed,
        "description": text,
        "schema": dict(schema),
    }


_INTEGER = {"type": "integer", "minimum": 0}
_PAGE = _parameter("page", "the page, from 1", _INTEGER)
_MAX_VALUE_BYTES = _parameter(
    "max_value_bytes",
    "bytes of each key and value, and of the headers of a record, at most 262,144; is_cut tells "
    "whether there are more",
    _INTEGER,
)
_FILTER = _parameter("filter", "a part of the name")


def _get(summary: str, schema: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "get": {
            "summary": summary,
            "parameters": list(parameters),
            "responses": {
                "200": {
                    "description": summary,
                    "content": {"application/json": {"schema": _ref(schema)}},
                },
                "default": {
                    "description": "The request cannot be answered, and why.",
                    "content": {"application/json": {"schema": _ref("Error")}},
                },
            },
        }
    }


def _post(
    summary: str, needed: Sequence[str], others: Sequence[str], schema: str
) -> dict[str, Any]:
    either = {"type": ["string", "integer", "boolean", "null"]}
    properties: dict[str, Any] = dict.fromkeys((*needed, *others), either)
    properties["dry_run"] = {
        "type": "boolean",
        "default": True,
        "description": "true: only say what would change",
    }
    answer = _get(summary, schema)["get"]
    body = {"type": "object", "properties": properties, "required": list(needed)}
    return {
        "post": {
            **answer,
            "security": [{"token": []}, {"user": []}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        }
    }


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace ui",
            "version": __version__,
            "description": "The queues of a Kafka-protocol cluster. Unknown values are null.",
        },
        "paths": {
            "/api/overview": _get(
                "The totals of the cluster, and what needs attention", "Overview"
            ),
            "/api/groups": _get(
                "A page of the groups",
                "Groups",
                _FILTER,
                _parameter("type", "share, consumer, classic or streams"),
                _parameter("sort", "the order", {"enum": list(GROUP_SORTS)}),
                _PAGE,
            ),
            "/api/group": _get(
                "A group: partitions, members, settings, and what is in flight",
                "Group",
                _parameter("id", "the group id", needed=True),
                _PAGE,
            ),
            "/api/topics": _get(
                "A page of the topics",
                "Topics",
                _FILTER,
                _parameter("sort", "the order", {"enum": list(TOPIC_SORTS)}),
                _parameter("internal", "yes: with internal topics"),
                _PAGE,
            ),
            "/api/topic": _get(
                "A topic: partitions and configs",
                "Topic",
                _parameter("name", "the topic", needed=True),
                _PAGE,
            ),
            "/api/records": _get(
                "A page of the records of a topic",
                "Records",
                _parameter("topic", "the topic", needed=True),
                _parameter("partition", "a partition; all without it", _INTEGER),
                _parameter("start", "latest, earliest, offset or time"),
                _parameter("offset", "with start=offset", _INTEGER),
                _parameter("time", "with start=time: ISO 8601, or milliseconds"),
                _parameter("key", "a part of the key"),
                _parameter("value", "a part of the value"),
                _parameter("header", "the name of a header, or name=part of its value"),
                _parameter("limit", "the number of records, at most 200", _INTEGER),
                _MAX_VALUE_BYTES,
                _parameter("committed", "yes: without open and aborted transactions"),
                _parameter("positions", "as in the address of a next page"),
                _parameter("rest", "as in the address of a next page", _INTEGER),
            ),
            "/api/record": _get(
                "A record, and where it stands with share groups",
                "Record",
                _parameter("topic", "the topic", needed=True),
                _parameter("partition", "the partition", _INTEGER, needed=True),
                _parameter("offset", "the offset", _INTEGER, needed=True),
                _MAX_VALUE_BYTES,
            ),
            "/api/actions": _get("The actions that were executed, the newest first", "Actions"),
            **{f"/api/actions/{name}": _post(*one, "Plan") for name, one in ACTIONS.items()},
        },
        "components": {
            "schemas": dict(SCHEMAS),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "user": {"type": "http", "scheme": "basic"},
            },
        },
    }
