"""The pages: their data from the cluster, and access to them."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.lag.group_lines import GroupLine
from headrace.client.settings import Settings
from headrace.http.failed_logins import FailedLogins
from headrace.protocol.partitions import TopicPartition

from . import pictures, texts
from .access import Credentials, Session, Sessions, basic_or_bearer
from .actions import Planner, Plans, log_line
from .groups import GroupDetail, group_detail
from .history import Point
from .limits import (
    HISTORY_POINTS,
    MAX_COURSES,
    MAX_GROUPS_OF_RECORD,
    MAX_SHOWN_CHARS,
    MAX_VALUE_BYTES,
    MAX_VALUE_CHARS,
)
from .observer import Observation, Observer, TopicLine
from .page import Pages, url
from .reads import in_thread
from .records import FoundRecord, find_records, record_at
from .requests import (
    BadRequest,
    NotThere,
    check_form,
    form_of,
    host_of,
    is_part,
    more_url,
    needed,
    number,
    records_query,
    require_same_origin,
    text_of,
    word_of,
)
from .standing import Standing, dead_lettered, standing, standings
from .topics import TopicDetail, topic_detail
from .views import GROUP_SORTS, TOPIC_SORTS, Listing, listing, totals

COOKIE = "headrace_session"
_SECURE_COOKIE = f"__Host-{COOKIE}"
"""Browsers take it over TLS only, and neither from nor for another host."""
_FIRST_OBSERVATION_S = 0.25
"""The time that a page waits for the first observation; after it, the page is sent without one."""
_OVERVIEW_ROWS = 15
_RETRY_S = 5
"""The time after which a browser asks again for a page that the cluster did not answer for."""
_SHORT_CHARS = 240
"""Characters of a value in a list of records, unless its format is chosen."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who asks for a page.

    :param user: None without a login
    :param session: the login of a browser; None for others
    """

    user: str | None
    session: Session | None = None


Course = deque[tuple[int, int, int]]
"""(time in ms, released records, archived records) of a share group, at each view of its page."""


class Site:
    """The state behind all pages.

    :param settings: of the connections to the cluster
    :param credentials: of the users who may act; empty: the page is read-only
    :param producer_config: librdkafka's configuration, for records to produce
    :param login_to_view: require a login to view pages, too
    :param is_secure: the page is served over TLS, so that browsers may require it for the cookie
    """

    def __init__(
        self,
        settings: Settings,
        observer: Observer,
        credentials: Credentials,
        *,
        producer_config: Mapping[str, str],
        login_to_view: bool = False,
        is_secure: bool = False,
    ) -> None:
        self.observer = observer
        self.credentials = credentials
        self.login_to_view = login_to_view
        self.is_secure = is_secure
        self.sessions = Sessions()
        self.failed_logins = FailedLogins()
        self.cookie = _SECURE_COOKIE if is_secure else COOKIE
        self.pages = Pages()
        self.cluster: Cluster = settings.cluster()
        self.plans = Plans()
        self.planner = Planner(self.cluster, producer_config)
        self._courses: dict[str, Course] = {}

    # Visitors -------------------------------------------------------------------------------------

    def visitor(self, request: Request) -> Visitor:
        """Return the visitor who sent a request."""
        if not hasattr(request.state, "visitor"):  # a wrong password counts once for each request
            request.state.visitor = self._visitor(request)
        visitor: Visitor = request.state.visitor
        return visitor

    def _visitor(self, request: Request) -> Visitor:
        header = request.headers.get("authorization")
        if header is not None and self.credentials:
            name_and_secret = basic_or_bearer(header)
            if name_and_secret is None:
                return Visitor(None)
            return Visitor(self._admitted(request, *name_and_secret))
        session = self.sessions.get(request.cookies.get(self.cookie), is_use=not is_part(request))
        return Visitor(None if session is None else session.user, session)

    def _admitted(self, request: Request, name: str, secret: str) -> str | None:
        """Return the user with this name and password, or of this token; count a wrong one."""
        user = self.credentials.admits(name, secret)
        if user is None:
            user_name = name if name in self.credentials.users else None
            request.state.is_late = self.failed_logins.count(host_of(request), user_name)
        return user

    def may_view(self, visitor: Visitor) -> bool:
        """Return whether a visitor may view pages."""
        return not self.login_to_view or visitor.user is not None

    # Rendering ------------------------------------------------------------------------------------

    def html(
        self, request: Request, template: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Return a page.

        The page has the template ``NAME.html``; its part that changes with time has the template
        ``NAME_live.html``, if there is one. With ``part`` in the query, return only this part; or
        204, if ``part`` is the digest of what the browser shows already.
        """
        visitor = self.visitor(request)
        observer = self.observer if self.may_view(visitor) else None
        live_url = ""
        query = {k: v for k, v in request.query_params.items() if k != "part"}
        common = {
            "visitor": visitor,
            "may_act": bool(self.credentials),
            "acting": visitor.user is not None,
            "csrf": visitor.session.csrf if visitor.session is not None else "",
            "seen": observer and observer.observation,
            "problem": observer and observer.problem,
            "stale_ms": observer and observer.stale_ms(time.time_ns() // 1_000_000),
            "retry_s": _RETRY_S if status == 502 and request.method == "GET" else None,
            "path": request.url.path,
            "address": str(request.url.path)
            + (f"?{request.url.query}" if request.url.query else ""),
            "query": query,
        }
        live = ""
        if f"{template}_live.html" in self.pages.names:
            live = self.pages.render("live_state.html", common)
            live += self.pages.render(f"{template}_live.html", {**common, **values})
            digest = hashlib.sha256(live.encode()).hexdigest()[:16]
            if request.query_params.get("part") == digest:
                return Response(status_code=204)
            live_url = url(request.url.path, **query, part=digest)
        if is_part(request):
            body = self.pages.render(
                "live.html", {**common, "live": Markup(live), "live_url": live_url}
            )
        else:
            body = self.pages.render(
                f"{template}.html",
                {**common, **values, "live": Markup(live), "live_url": live_url},
            )
        return HTMLResponse(body, status)

    async def seen(self) -> Observation | None:
        """Return the newest observation of the cluster; wait a moment for the first one."""
        self.observer.watch()
        if self.observer.observation is None and self.observer.problem is None:
            await in_thread(self.observer.wait_first, _FIRST_OBSERVATION_S)
        return self.observer.observation

    # Overview -------------------------------------------------------------------------------------

    async def overview(self, request: Request) -> Response:
        """Return the overview."""
        seen = await self.seen()
        values: dict[str, Any] = {"groups": None, "topics": None, "totals": None}
        if seen is not None:
            values["totals"] = totals(seen)
            values["groups"] = listing(
                seen.groups.values(), GROUP_SORTS, sort="lag", rows=_OVERVIEW_ROWS
            )
            topics = (one for one in seen.topics.values() if not one.is_internal)
            values["topics"] = listing(topics, TOPIC_SORTS, sort="rate", rows=_OVERVIEW_ROWS)
            values["histories"] = self._group_histories(values["groups"])
            values["courses"] = self._topic_histories(values["topics"])
        return self.html(request, "overview", values)

    async def group_list(self, request: Request) -> Response:
        """Return the page of all groups."""
        seen = await self.seen()
        found = None if seen is None else self.listed_groups(request, seen)
        return self.html(
            request,
            "groups",
            {"groups": found, "histories": {} if found is None else self._group_histories(found)},
        )

    def listed_groups(self, request: Request, seen: Observation) -> Listing[GroupLine]:
        """Return the groups that a request selects."""
        kind = word_of(request, "type", ("", "share", "consumer", "classic", "streams"), "")
        return listing(
            (one for one in seen.groups.values() if not kind or one.type == kind),
            GROUP_SORTS,
            sort=word_of(request, "sort", GROUP_SORTS, "lag"),
            text=text_of(request, "filter"),
            page=number(request, "page", 1),
        )

    def _group_histories(self, found: Listing[GroupLine]) -> dict[str, tuple[Point, ...]]:
        return {one.group: self.observer.group_history(one.group) for one in found.page.rows}

    def _topic_histories(self, found: Listing[TopicLine]) -> dict[str, tuple[Point, ...]]:
        return {one.name: self.observer.topic_history(one.name) for one in found.page.rows}

    async def topic_list(self, request: Request) -> Response:
        """Return the page of all topics."""
        seen = await self.seen()
        found = None if seen is None else self.listed_topics(request, seen)
        return self.html(
            request,
            "topics",
            {"topics": found, "courses": {} if found is None else self._topic_histories(found)},
        )

    def listed_topics(self, request: Request, seen: Observation) -> Listing[TopicLine]:
        """Return the topics that a request selects."""
        with_internal = text_of(request, "internal") == "yes"
        return listing(
            (one for one in seen.topics.values() if with_internal or not one.is_internal),
            TOPIC_SORTS,
            sort=word_of(request, "sort", TOPIC_SORTS, "name"),
            text=text_of(request, "filter"),
            page=number(request, "page", 1),
        )

    # Details --------------------------------------------------------------------------------------

    async def group(self, request: Request) -> Response:
        """Return the page of a group."""
        seen = await self.seen()
        detail = await self.group_detail(request)
        history = self.observer.group_history(detail.group_id)
        line = None if seen is None else seen.groups.get(detail.group_id)
        queue = None if seen is None else seen.queues.get(detail.group_id)
        states = [partition.share for partition in detail.partitions if partition.share is not None]
        archived = sum(state.archived_count or 0 for state in states)
        return self.html(
            request,
            "group",
            {
                "group": detail,
                "line": line,
                "notes": [one for one in seen.notes if one.group == detail.group_id]
                if seen is not None
                else [],
                "queue": queue,
                "without_letter": archived if seen is not None and not queue else 0,
                "charts": self._charts(detail, history),
                "flights": self._flights(detail),
                "holders": detail.holders,
            },
        )

    async def group_detail(self, request: Request) -> GroupDetail:
        """Return the group that a request names.

        :raises NotThere: it does not exist
        """
        group_id = needed(request, "id")
        seen = self.observer.observation
        detail = await group_detail(
            self.cluster,
            group_id,
            number(request, "page", 1),
            known=None if seen is None else seen.groups.get(group_id),
            with_configs=not is_part(request),
        )
        if detail is None:
            raise NotThere(f"The group {group_id!r} does not exist.")
        return detail

    def _charts(self, detail: GroupDetail, history: tuple[Point, ...]) -> list[Any]:
        def series(
            name: str, style: str, value: Callable[[Point], float | None]
        ) -> pictures.Series:
            return pictures.Series(name, style, [(one.time_ms, value(one)) for one in history])

        lag = series("lag", "a", lambda one: one.lag)
        age = series("age", "a", lambda one: one.time_lag_ms)
        finished = series("finished", "a", lambda one: one.consumed_per_s)
        produced = series("produced", "b", lambda one: one.produced_per_s)
        oldest = "Age of the oldest record to finish"
        charts = [
            pictures.chart("Lag in records", [lag], texts.number, least=3),
            pictures.chart(oldest, [age], texts.duration, is_time=True),
            pictures.chart("Records a second", [finished, produced], texts.number),
        ]
        if detail.tells_spans:
            released, archived = self._outcomes(detail)
            returned = [
                pictures.Series("released", "a", released),
                pictures.Series("archived", "b", archived),
            ]
            charts.append(pictures.chart("Released or archived a second", returned, texts.number))
        return charts

    def _outcomes(
        self, detail: GroupDetail
    ) -> tuple[list[tuple[int, float | None]], list[tuple[int, float | None]]]:
        """Return the records per second that were released, and that were archived: rejected, or
        over the delivery limit. They come from earlier views of a group's page.
        """
        states = [one.share for one in detail.partitions if one.share is not None]
        released = sum(one.released_count or 0 for one in states)
        archived = sum(one.archived_count or 0 for one in states)
        name = f"{detail.group_id} {detail.partitions[0].topic}-{detail.partitions[0].number}"
        course = self._courses.pop(name, None) or deque(maxlen=HISTORY_POINTS)
        self._courses[name] = course
        while len(self._courses) > MAX_COURSES:
            del self._courses[next(iter(self._courses))]
        now_ms = time.time_ns() // 1_000_000
        if not course or now_ms - course[-1][0] >= 1000:
            course.append((now_ms, released, archived))
        rates: tuple[list[tuple[int, float | None]], list[tuple[int, float | None]]] = ([], [])
        for earlier, later in pairwise(course):
            over_s = (later[0] - earlier[0]) / 1000
            for n in (0, 1):
                growth = later[n + 1] - earlier[n + 1]
                rates[n].append((later[0], growth / over_s if growth >= 0 else None))
        return rates

    def _flights(self, detail: GroupDetail) -> dict[TopicPartition, Any]:
        """Return the pictures of what is in flight."""
        found = {}
        holders = detail.holders
        for one in detail.partitions:
            share = one.share
            if share is not None and share.spans is not None and share.end_offset is not None:
                found[one.topic, one.number] = pictures.in_flight(
                    share.start_offset or 0, share.end_offset, share.spans, holders
                )
        return found

    async def topic(self, request: Request) -> Response:
        """Return the page of a topic."""
        seen = await self.seen()
        name = needed(request, "name")
        detail = await self.topic_detail(request)
        history = self.observer.topic_history(name)
        values = [(one.time_ms, one.produced_per_s) for one in history]
        return self.html(
            request,
            "topic",
            {
                "topic": detail,
                "line": None if seen is None else seen.topics.get(name),
                "readers": self.readers(name),
                "chart": pictures.chart(
                    "Records produced a second",
                    [pictures.Series("produced", "a", values)],
                    texts.number,
                    pictures.WIDE_CHART,
                ),
            },
        )

    async def topic_detail(self, request: Request) -> TopicDetail:
        """Return the topic that a request names.

        :raises NotThere: it does not exist
        """
        name = needed(request, "name")
        detail = await topic_detail(
            self.cluster, name, number(request, "page", 1), with_configs=not is_part(request)
        )
        if detail is None:
            raise NotThere(f"The topic {name!r} does not exist.")
        return detail

    def readers(self, topic: str, kind: str = "") -> list[GroupLine]:
        """Return the groups that have read a topic, by name.

        :param kind: only groups of this type
        """
        seen = self.observer.observation
        if seen is None:
            return []
        return [
            seen.groups[group_id]
            for group_id, topics in seen.topics_of.items()
            if topic in topics and (not kind or seen.groups[group_id].type == kind)
        ]

    # Records --------------------------------------------------------------------------------------

    async def records(self, request: Request) -> Response:
        """Return a page of the records of a topic."""
        await self.seen()
        query = records_query(request)
        form = word_of(request, "format", texts.FORMATS, "auto")
        found = await find_records(self.cluster, query)
        groups = [one.group for one in self.readers(query.topic, "share")]
        shown = groups[:MAX_GROUPS_OF_RECORD]
        stands = await self._stands(query.topic, shown, found.records)
        return await in_thread(
            self.html,
            request,
            "records",
            {
                "ask": query,
                "format": form,
                "found": found,
                "rows": await in_thread(_rows, found.records, form),
                "stands": stands,
                "groups": shown,
                "more": more_url(query, form, found),
                "partitions": found.numbers,
                "when": texts.moment(query.time_ms) if query.start == "time" else "",
            },
        )

    async def _stands(
        self, topic: str, group_ids: Sequence[str], found: Sequence[FoundRecord]
    ) -> dict[tuple[int, int], list[Standing]]:
        """Return (partition, offset) → the standing of the record with each share group."""
        keys = [(topic, number) for number in sorted({one.partition for one in found})]
        if not keys or not group_ids:
            return {}
        states = await standings(self.cluster, group_ids, keys)
        return {
            (one.partition, one.record.offset): [
                standing(group_id, of_group.get((topic, one.partition)), one.record.offset)
                for group_id, of_group in states.items()
            ]
            for one in found
        }

    async def record(self, request: Request) -> Response:
        """Return the page of a record."""
        await self.seen()
        topic = needed(request, "topic")
        partition = number(request, "partition", 0)
        offset = number(request, "offset", 0)
        form = word_of(request, "format", texts.FORMATS, "auto")
        found, stands = await self.record_with_standing(topic, partition, offset, MAX_VALUE_BYTES)
        record = found.record
        value, value_format, is_cut = await in_thread(
            texts.rendered, record.value, form, MAX_VALUE_CHARS
        )
        key, key_format, _ = await in_thread(texts.rendered, record.key, form, MAX_SHOWN_CHARS)
        return await in_thread(
            self.html,
            request,
            "record",
            {
                "topic": topic,
                "partition": partition,
                "record": record,
                "size": found.value_bytes,
                "value": value,
                "value_format": value_format,
                "is_cut": is_cut,
                "key": key,
                "key_format": key_format,
                "headers": [
                    (name, texts.short(content, MAX_SHOWN_CHARS))
                    for name, content in record.headers
                ],
                "format": form,
                "stands": stands,
            },
        )

    async def record_with_standing(
        self, topic: str, partition: int, offset: int, max_bytes: int
    ) -> tuple[FoundRecord, list[Standing]]:
        """Return a record, and where it stands with the share groups of its topic.

        :param max_bytes: of its key, of its value, and of its headers
        :raises NotThere: there is no such record
        """
        record = await record_at(self.cluster, topic, partition, offset, max_bytes)
        if record is None:
            raise NotThere(f"There is no record at offset {offset} of {topic}-{partition}.")
        groups = [one.group for one in self.readers(topic, "share")][:MAX_GROUPS_OF_RECORD]
        found = await self._stands(topic, groups, [record])
        stands = found.get((partition, offset), [])
        seen = self.observer.observation
        queues = {} if seen is None else seen.queues
        letters: dict[str, Any] = {}
        for n, one in enumerate(stands):
            queue = queues.get(one.group)
            if one.kind == "done" and queue:
                try:
                    if queue not in letters:
                        letters[queue] = await dead_lettered(self.cluster, queue)
                except ClientError:
                    continue
                if (one.group, topic, partition, offset) in letters[queue]:
                    stands[n] = Standing(one.group, "dead", f"dead-lettered to {queue}")
        return record, stands

    # Actions --------------------------------------------------------------------------------------

    async def actions(self, request: Request) -> Response:
        """Return the list of the actions that were executed."""
        return self.html(request, "actions", {"done": list(self.plans.done)})

    async def plan(self, request: Request) -> Response:
        """Return what an action would change, with the button that confirms it."""
        visitor, form = await self._actor(request)
        plan = await self.planner.plan(request.path_params["action"], form)
        back = form.get("back", "")
        plan.back = back if _is_path(back) else "/"
        values = {"plan": plan, "plan_id": self.plans.keep(visitor.user or "", plan)}
        return self.html(request, "plan", values)

    async def confirm(self, request: Request) -> Response:
        """Execute an action that was shown before.

        :raises BadRequest: it was executed already, or was shown too long ago
        :raises ClientError: the cluster refuses or does not answer
        """
        visitor, form = await self._actor(request)
        plan = self.plans.take(visitor.user or "", form.get("plan", ""))
        if plan is None:
            raise BadRequest("This action was executed already, or was shown too long ago.")
        outcome = await self.plans.execute(visitor.user or "", host_of(request), plan)
        self.observer.refresh()
        values = {"title": plan.title, "text": outcome, "tone": "good", "back": plan.back}
        return self.html(request, "message", values)

    async def _actor(self, request: Request) -> tuple[Visitor, dict[str, str]]:
        """Return the visitor who sent a form, and its fields.

        :raises BadRequest: nobody has logged in, or the form is not that of the login
        """
        visitor = self.visitor(request)
        form = await form_of(request)
        check_form(request, visitor.session, form)
        return visitor, form

    # Logins ---------------------------------------------------------------------------------------

    async def login(self, request: Request) -> Response:
        """Return the login form; with POST, check it and begin a login."""
        back = request.query_params.get("back", "")  # the address of any page
        wrong = ""
        status = 200
        if request.method == "POST":
            require_same_origin(request)
            form = await form_of(request)
            back = form.get("back", "")
            user = self._admitted(request, form.get("name", ""), form.get("password", ""))
            if user is not None:
                log_line(user, host_of(request), "has logged in")
                return self._logged_in(user, back)
            wrong, status = "That is not right.", 401
        values = {"wrong": wrong, "back": back, "has_users": bool(self.credentials.users)}
        return self.html(request, "login", values, status)

    def _logged_in(self, user: str, back: str) -> Response:
        response = RedirectResponse(back if _is_path(back) else "/", 303)
        response.set_cookie(
            self.cookie,
            self.sessions.begin(user),
            httponly=True,
            samesite="strict",
            secure=self.is_secure,
            path="/",
        )
        return response

    async def logout(self, request: Request) -> Response:
        """End a login."""
        session = self.visitor(request).session
        form = await form_of(request)
        check_form(request, session, form)
        self.sessions.end(request.cookies.get(self.cookie))
        if session is not None:
            log_line(session.user, host_of(request), "has logged out")
        response = RedirectResponse("/", 303)
        response.delete_cookie(self.cookie, path="/", secure=self.is_secure, httponly=True)
        return response

    def static(self, request: Request) -> Response:
        """Return a file of the page.

        :raises NotThere: there is no such file
        """
        file = self.pages.files.get(request.path_params["name"])
        if file is None:
            raise NotThere("There is no such file.")
        is_current = request.path_params["version"] == self.pages.version
        cache = "public, max-age=31536000, immutable" if is_current else "no-store"
        return Response(file.body, media_type=file.content_type, headers={"cache-control": cache})


def _is_path(address: str) -> bool:
    """Return whether an address is a path on this site. ``//host`` is not."""
    return address.startswith("/") and not address.startswith(("//", "/\\"))


def _rows(records: Sequence[FoundRecord], form: str) -> list[dict[str, Any]]:
    """Return records as the table shows them."""
    return [_row(record, form) for record in records]


def _row(one: FoundRecord, form: str) -> dict[str, Any]:
    """Return a record as the table shows it."""
    if form == "auto":  # many records on one page
        value = texts.short(one.record.value, _SHORT_CHARS)
        value_format = "null" if one.record.value is None else "short"
        is_cut = value.endswith("…")
    else:
        value, value_format, is_cut = texts.rendered(one.record.value, form, MAX_SHOWN_CHARS)
    return {
        "partition": one.partition,
        "record": one.record,
        "key": texts.short(one.record.key, 200),
        "value": value,
        "format": value_format,
        "is_cut": is_cut,
        "size": one.value_bytes,
        "headers": [(name, texts.short(content, 200)) for name, content in one.record.headers],
    }
