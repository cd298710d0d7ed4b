"""The JSON API, with the same data as the pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.client.configs import Config

from .groups import GroupDetail
from .limits import API_VALUE_BYTES, MAX_API_VALUE_BYTES
from .observer import Observation
from .openapi import document
from .paging import Page
from .reads import in_thread
from .records import FoundRecord, cut_record, find_records
from .requests import (
    BadRequest,
    WrongType,
    host_of,
    more_url,
    needed,
    number,
    records_query,
    require_same_origin,
    text_of,
)
from .site import Site
from .views import totals

_JSON = "application/json"


class Api:
    """The handlers of ``/api/…``."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def description(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return JSONResponse(document())

    async def overview(self, request: Request) -> Response:
        """Return the totals of the cluster, and what needs attention."""
        seen = await self._site.seen()
        if seen is None:
            return JSONResponse(
                {"ready": False, "problem": self._site.observer.problem}, status_code=503
            )
        return JSONResponse(
            {
                "ready": True,
                "problem": self._site.observer.problem,
                "time_ms": seen.time_ms,
                "took_ms": seen.took_ms,
                "cluster_id": seen.cluster_id,
                "brokers": seen.brokers,
                "failed_logins": self._site.failed_logins.total,
                "totals": totals(seen)._asdict(),
                "notes": [one._asdict() for one in seen.notes],
                "warnings": list(seen.warnings),
            }
        )

    async def groups(self, request: Request) -> Response:
        """Return a page of the groups."""
        seen = await self._site.seen()
        if seen is None:
            return _not_ready(self._site)
        page = self._site.listed_groups(request, seen).page
        rows = [one._asdict() for one in page.rows]
        return JSONResponse({**_head(seen, page), "groups": rows})

    async def group(self, request: Request) -> Response:
        """Return a group."""
        await self._site.seen()
        detail = await self._site.group_detail(request)
        seen = self._site.observer.observation
        line = None if seen is None else seen.groups.get(detail.group_id)
        history = self._site.observer.group_history(detail.group_id)
        return JSONResponse(
            {
                **_group(detail),
                "summary": None if line is None else line._asdict(),
                "dead_letter_queue": None if seen is None else seen.queues.get(detail.group_id),
                "history": [one._asdict() for one in history],
            }
        )

    async def topics(self, request: Request) -> Response:
        """Return a page of the topics."""
        seen = await self._site.seen()
        if seen is None:
            return _not_ready(self._site)
        page = self._site.listed_topics(request, seen).page
        rows = [
            {
                "name": one.name,
                "partitions": one.partitions,
                "is_internal": one.is_internal,
                "end_offsets": one.end_offsets,
                "produced_per_s": one.produced_per_s,
                "groups": one.groups,
                "dead_letters_of": list(one.letters_of),
            }
            for one in page.rows
        ]
        return JSONResponse({**_head(seen, page), "topics": rows})

    async def topic(self, request: Request) -> Response:
        """Return a topic."""
        await self._site.seen()
        detail = await self._site.topic_detail(request)
        return JSONResponse(
            {
                "name": detail.name,
                "topic_id": detail.topic_id,
                "is_internal": detail.is_internal,
                "partition_count": detail.page.total,
                "partitions": [
                    {
                        "partition": one.info.number,
                        "leader": one.info.leader,
                        "replicas": list(one.info.replicas),
                        "in_sync": list(one.info.isr),
                        "start_offset": one.start_offset,
                        "end_offset": one.end_offset,
                    }
                    for one in detail.partitions
                ],
                "configs": _configs(detail.configs),
                "groups": [one.group for one in self._site.readers(detail.name)],
                "warnings": list(detail.warnings),
            }
        )

    async def records(self, request: Request) -> Response:
        """Return a page of the records of a topic."""
        query = records_query(request)
        max_bytes = _max_value_bytes(request, API_VALUE_BYTES)
        cut = partial(cut_record, max_bytes=max_bytes)
        found = await find_records(self._site.cluster, query, cut)
        size = text_of(request, "max_value_bytes")
        link = more_url(query, "auto", found, "/api/records", size)

        def answer() -> Response:
            return JSONResponse(
                {
                    "records": [_record(record) for record in found.records],
                    "compared": found.scanned,
                    "complete": found.complete,
                    "next": link or None,
                    "warnings": list(found.problems),
                }
            )

        return await in_thread(answer)  # megabytes become JSON

    async def record(self, request: Request) -> Response:
        """Return a record, and its standing with share groups."""
        await self._site.seen()
        topic, partition = needed(request, "topic"), number(request, "partition", 0)
        offset = number(request, "offset", 0)
        max_bytes = _max_value_bytes(request, MAX_API_VALUE_BYTES)
        record, stands = await self._site.record_with_standing(topic, partition, offset, max_bytes)

        def answer() -> Response:
            return JSONResponse(
                {
                    "topic": topic,
                    **_record(record),
                    "standing": [one._asdict() for one in stands],
                }
            )

        return await in_thread(answer)

    async def act(self, request: Request) -> Response:
        """Return the plan of an action, and execute it if the body has ``"dry_run": false``.

        :raises NotAllowed: the request has no token or password in its Authorization header
        :raises WrongType: the body is not declared as JSON
        :raises BadRequest: the body is not a JSON object, or a field is missing or wrong
        :raises NotThere: what the body names does not exist
        :raises ClientError: the cluster refuses or does not answer
        """
        # A browser that has a password for this site sends it with the form of another site, too.
        # No form can have this type, and a script of another site may not send it.
        require_same_origin(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise WrongType(f"An action takes a body of the type {_JSON}.")
        visitor = self._site.visitor(request)
        if visitor.user is None or visitor.session is not None:
            # A login of a browser is not enough: another site could make the browser send it.
            raise NotAllowed
        try:
            fields = json.loads(await request.body())
            json.dumps(fields, ensure_ascii=False).encode()  # half a character is no text
        except (ValueError, RecursionError):
            raise BadRequest("The body is not JSON.") from None
        if not isinstance(fields, dict):
            raise BadRequest("The body is not a JSON object.")
        is_dry = fields.pop("dry_run", True)
        if not isinstance(is_dry, bool):
            raise BadRequest("dry_run is true or false.")
        form = {str(name): _field_text(value) for name, value in fields.items()}
        plan = await self._site.planner.plan(request.path_params["action"], form)
        outcome = None
        if not is_dry:
            outcome = await self._site.plans.execute(visitor.user, host_of(request), plan)
            self._site.observer.refresh()
        return JSONResponse(
            {
                "title": plan.title,
                "changes": [one._asdict() for one in plan.changes],
                "cautions": list(plan.cautions),
                "executed": not is_dry,
                "outcome": outcome,
            }
        )

    async def actions(self, request: Request) -> Response:
        """Return the actions that were executed, the newest first."""
        return JSONResponse({"actions": [one._asdict() for one in self._site.plans.done]})


class NotAllowed(Exception):
    """A request has no token or password in its Authorization header."""


def _field_text(value: object) -> str:
    """Return a value of JSON as the field of a form."""
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    return str(value)


def _not_ready(site: Site) -> Response:
    text = site.observer.problem or "the cluster was not seen yet: try again in a moment"
    return JSONResponse({"error": text}, status_code=503)


def _head(seen: Observation, page: Page[Any]) -> dict[str, Any]:
    """Return what precedes the rows of a page."""
    return {
        "time_ms": seen.time_ms,
        "count": page.total,
        "page": page.number,
        "pages": page.count,
    }


def _group(detail: GroupDetail) -> dict[str, Any]:
    return {
        "id": detail.group_id,
        "type": detail.type,
        "state": detail.state,
        "partition_count": detail.page.total,
        "tells_in_flight": detail.tells_spans,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.number,
                "start_offset": one.row.start_offset,
                "committed_offset": one.row.committed_offset,
                "end_offset": one.row.end_offset,
                "lag": one.row.lag,
                "time_lag_ms": one.row.time_lag_ms,
                "members": one.row.member_id.split(",") if one.row.member_id else [],
                "released_count": None if one.share is None else one.share.released_count,
                "archived_count": None if one.share is None else one.share.archived_count,
                "in_flight": None
                if one.share is None or one.share.spans is None
                else [
                    {**asdict(span), "state": span.state.name.lower()} for span in one.share.spans
                ],
            }
            for one in detail.partitions
        ],
        "members": [
            {
                "member_id": one.member_id,
                "client_id": one.client_id,
                "host": one.host,
                "partitions": dict(one.partitions),
            }
            for one in detail.members
        ],
        "configs": _configs(detail.configs),
        "warnings": list(detail.warnings),
    }


def _configs(configs: Sequence[Config] | None) -> Any:
    if configs is None:
        return None
    return [
        {
            "name": one.name,
            "value": None if one.is_sensitive else one.value,
            "source": one.source,
            "is_sensitive": one.is_sensitive,
        }
        for one in configs
    ]


def _max_value_bytes(request: Request, default: int) -> int:
    """Return the bytes to return of each key, value and headers of a record."""
    return min(max(1, number(request, "max_value_bytes", default)), MAX_API_VALUE_BYTES)


def _record(found: FoundRecord) -> dict[str, Any]:
    record = found.record
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": [[name, _bytes(content)] for name, content in record.headers],
        "value_bytes": found.value_bytes,
        "is_cut": found.is_cut,
    }


def _bytes(data: bytes | None) -> Any:
    """Return bytes as JSON: a text if they are UTF-8, else ``{"base64": …}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
