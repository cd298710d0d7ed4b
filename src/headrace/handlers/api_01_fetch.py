"""Fetch (1), versions 4-18: read batches, waiting up to ``max_wait`` for ``min_bytes`` (KIP-74).

Batches are sent as they are on disk.

Version notes:

* Version 4 adds the isolation level and aborted transactions (KIP-98).
* Version 5 adds log start offsets.
* Version 7 adds fetch sessions: requests and responses have only partitions that changed (KIP-227).
* Version 9 adds leader epochs (KIP-320).
* Version 12 adds the epoch of the last fetched record and diverging epochs (KIP-595).
* Version 13 replaces topic names by ids (KIP-516).
* Versions 15-18 add fields for replicas only.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID, FetchSession
from headrace.broker.limits import MAX_FETCH_WAIT_MS, SLICED_ABOVE
from headrace.broker.long_polls import LongPoll
from headrace.errors import Refusal
from headrace.protocol.fetch import FetchRequest, FetchResponse
from headrace.protocol.versions import TopicIds
from headrace.protocol.writer import NO_TIME

from .context import RequestContext
from .fetches import FullFetch, SessionFetch, response


def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> Any:
    """Read the partitions of the request or its session; wait until ``min_bytes`` are available."""
    topics = request.topics
    if topics and sum(len(topic.partitions) for topic in topics) > SLICED_ABOVE:
        return _fetch_many(broker, request, context)
    return _fetch(broker, request, context)


async def _fetch_many(broker: Broker, request: FetchRequest, context: RequestContext) -> Any:
    """Open the logs in slices, as the first use of a log reads its directory; then fetch."""
    await broker.slices.run(_open_logs(broker, request))
    fetched = _fetch(broker, request, context)
    return await fetched.future() if isinstance(fetched, LongPoll) else fetched


def _open_logs(broker: Broker, request: FetchRequest) -> Generator[None]:
    for topic in request.topics:
        for asked in topic.partitions:
            broker.partition(topic.topic_id, asked.partition)
            yield


def _fetch(broker: Broker, request: FetchRequest, context: RequestContext) -> Any:
    topic_ids: TopicIds | None = context.legacy.get("topic_ids")
    fetch: FullFetch | SessionFetch
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION_ID:
            broker.fetch_sessions.close(request.session_id)
        fetch = FullFetch(broker, request, context)
    else:
        session = _resume_session(broker, request, topic_ids)
        if isinstance(session, Refusal):
            return response((), session.code)
        if session.is_open:
            fetch = SessionFetch(broker, request, session, context)
        else:  # the request has removed its last partition
            fetch = FullFetch(broker, request, context)
    if fetch.read() or request.max_wait <= NO_TIME:
        return _answer(fetch, context)
    return _poll(broker, request, fetch, context)


def _answer(fetch: FullFetch | SessionFetch, context: RequestContext) -> FetchResponse:
    """Return the response: without records if the client exceeds its quota."""
    charge = context.charge
    if charge is not None and charge.fetch_ms(fetch.size_bytes):
        return fetch.throttled()
    return fetch.answer()


def _resume_session(
    broker: Broker, request: FetchRequest, topic_ids: TopicIds | None
) -> FetchSession | Refusal:
    """Apply a request to its session and return the session."""
    sessions = broker.fetch_sessions
    session = sessions.find(
        request.session_id, request.session_epoch, uses_names=topic_ids is not None
    )
    if isinstance(session, Refusal):
        return session
    for topic in request.topics:
        key = topic.topic_id if topic_ids is None else topic_ids.name_of(topic.topic_id)
        for asked in topic.partitions:
            session.update(key, asked)
    for forgotten in request.forgotten_topics_data:
        key = forgotten.topic_id if topic_ids is None else topic_ids.name_of(forgotten.topic_id)
        for partition in forgotten.partitions:
            session.forget(key, partition)
    session.isolate(request.isolation_level)
    return sessions.advance(session, broker.clock.now_ms())


def _poll(
    broker: Broker,
    request: FetchRequest,
    fetch: FullFetch | SessionFetch,
    context: RequestContext,
) -> LongPoll[FetchResponse]:
    """Wait for more records. The poll is registered before this returns, so it misses no append."""
    wait_ms = min(request.max_wait.total_seconds() * 1000, MAX_FETCH_WAIT_MS)

    def read_again(is_over: bool) -> FetchResponse | None:
        is_enough = fetch.read(again=True)
        return _answer(fetch, context) if is_enough or is_over else None

    return LongPoll(broker.long_polls, fetch.wait_keys, read_again, wait_ms)
