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

import asyncio

from headrace.net.api import READ_PARTITIONS, Api
from headrace.net.call import Call
from headrace.protocol.api import FetchRequest, FetchResponse
from headrace.protocol.errors import ErrorCode
from headrace.topics.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID, FetchSession
from headrace.topics.long_polls import MAX_FETCH_WAIT_MS

from .fetches import FIRST_WITH_TOPIC_IDS, Fetch, id_of, topic_key

API = Api(1, READ_PARTITIONS, is_quick=True)


async def handle(call: Call, request: FetchRequest) -> FetchResponse:
    """Read the partitions of the request or its session; wait until ``min_bytes`` are available."""
    for topic in request.topics:  # the first use of a log reads its directory
        topic_id = id_of(call, topic_key(call, topic))
        for partition in topic.partitions:
            call.topic_logs.partition(topic_id, partition.partition)
            await call.pause()
    session: FetchSession | None = None
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        resumed = _resume_session(call, request)
        if isinstance(resumed, ErrorCode):
            return FetchResponse(error_code=resumed)
        if resumed.is_open:  # else the request has removed its last partition
            session = resumed
    elif request.session_id != NO_SESSION_ID:
        call.fetch_sessions.close(request.session_id)
    fetch = Fetch(call, request, session)
    is_enough = fetch.read()
    if not is_enough and request.max_wait_ms > 0:
        wait_s = min(request.max_wait_ms, MAX_FETCH_WAIT_MS) / 1000
        end_s = asyncio.get_running_loop().time() + wait_s
        is_in_time = True
        while is_in_time and not is_enough:
            is_in_time = await call.long_polls.until(fetch.wait_keys(), end_s)
            is_enough = fetch.read(again=True)
    charge = call.client.charge
    if charge is not None and charge.fetch_ms(fetch.size_bytes):
        return fetch.throttled()
    return fetch.answer()


def _resume_session(call: Call, request: FetchRequest) -> FetchSession | ErrorCode:
    """Apply a request to its session and return the session."""
    sessions = call.fetch_sessions
    session = sessions.find(
        request.session_id, request.session_epoch, uses_names=call.version < FIRST_WITH_TOPIC_IDS
    )
    if isinstance(session, ErrorCode):
        return session
    for topic in request.topics:
        for partition in topic.partitions:
            session.update(topic_key(call, topic), partition)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.forget(topic_key(call, forgotten), index)
    session.isolate(request.isolation_level)
    return sessions.advance(session, call.clock.now_ms())
