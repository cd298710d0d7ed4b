"""The views of records, and where each stands with the share groups of its topic: done, held,
waiting, dead-lettered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

from msgspec.structs import replace

from headrace.client.cluster import Cluster
from headrace.client.dead_letters.letters import parse_letter
from headrace.client.dead_letters.reading import DEFAULT_PREFIX
from headrace.client.records import Record as WholeRecord
from headrace.client.share_state import SharePartitionState
from headrace.protocol.dead_letters import MESSAGE
from headrace.times import time_ms

from .errors import BadRequest, NotThere
from .observation import Observation, states_if_told
from .records import RECORDS_OF_PAGE, Filter, FoundRecords, Query, find_records, record_at
from .requests import MAX_URL_BYTES
from .schemas import about, parsed_text, text, whole
from .site import Visit
from .views import Letters, Records, ShownLetter, ShownRecord, Standing

MAX_FILTERS_BYTES = 2048
"""The filters of a page of records, as part of an address: the link to the next page has them, and
the link to log in has that one, escaped once more.
"""
MAX_RECORDS_OF_PAGE = 200
MAX_GROUPS_OF_RECORD = 20
"""Share groups that are asked for the state of a record."""
MAX_SPANS_OF_RECORD = 10_000
"""Spans of a partition in which a record is looked for."""

_MAX_POSITIONS = 200
"""Positions of partitions in the address of a next page, which has a limit."""

Topic = Annotated[str, text("the topic")]
Format = Annotated[
    Literal["auto", "text", "hex"], about("how the page shows values; JSON has them whole")
]
Start = Annotated[
    Literal["latest", "earliest", "offset", "time", "positions"], about("where to begin")
]
Limit = Annotated[int, whole("the number of records", least=1, most=MAX_RECORDS_OF_PAGE)]
Positions = Annotated[str, text("as in the address of a next page", MAX_URL_BYTES)]
Rest = Annotated[int, whole("as in the address of a next page")]


async def records(
    visit: Visit,
    *,
    topic: Topic,
    partition: Annotated[int, whole("a partition; all without it")] | None = None,
    start: Start = "latest",
    offset: Annotated[int, whole("with start=offset")] = 0,
    time: Annotated[
        str, text("with start=time: ISO 8601, -1h, yesterday, or milliseconds since the epoch")
    ] = "",
    key: Annotated[str, text("a part of the key")] = "",
    value: Annotated[str, text("a part of the value")] = "",
    header: Annotated[
        str, text("the name of a header, name=part of its value, or name==value")
    ] = "",
    limit: Limit = RECORDS_OF_PAGE,
    committed: Annotated[bool, about("without open and aborted transactions")] = False,
    positions: Positions = "",
    rest: Rest = 0,
    format: Format = "auto",
    follow: Annotated[bool, about("the page asks again every two seconds")] = False,
) -> Records:
    """Return a page of the records of a topic.

    :raises UnknownTopic: the topic does not exist
    :raises NotThere: it has no such partition
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    seen = await visit.seen_if_any()
    query = Query(
        topic,
        partition,
        start,
        offset,
        max(0, parsed_text(time_ms, time.strip())) if start == "time" else 0,
        limit,
        _filter(key, value, header),
        positions_of(positions),
        rest,
        committed,
    )
    page = await find_records(visit.cluster, query)
    groups = _sharing_groups(seen, topic)
    return Records(
        await _with_standing(visit.cluster, groups, topic, page.records),
        page.scanned,
        page.complete,
        next_link(visit, query, page),
        page.partitions,
        groups,
        page.problems,
    )


async def letters(
    visit: Visit,
    *,
    queue: Annotated[
        str, text("the dead-letter queue; without it only the queues are listed")
    ] = "",
    reason: Annotated[str, text("a part of the reason")] = "",
    start: Start = "latest",
    limit: Limit = RECORDS_OF_PAGE,
    positions: Positions = "",
    rest: Rest = 0,
) -> Letters:
    """Return a page of the dead letters of a queue, and the redrives that run.

    :raises UnknownTopic: the queue does not exist
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    seen = await visit.seen_if_any()
    queues = [
        topic
        for topic in seen.topics.values()
        if topic.dead_letters_of or topic.topic.startswith(DEFAULT_PREFIX)
    ]
    redrives = visit.site.redrives.of(queue)
    if not queue:
        return Letters("", queues, [], 0, True, None, redrives, [])
    query = Query(
        queue,
        start=start,
        limit=limit,
        filter=_filter("", "", f"{MESSAGE}={reason}" if reason else ""),
        positions=positions_of(positions),
        rest=rest,
    )
    page = await find_records(visit.cluster, query)
    letters = [replace(record, letter=_letter(record)) for record in page.records]
    link = next_link(visit, query, page)
    return Letters(
        queue, queues, letters, page.scanned, page.complete, link, redrives, page.problems
    )


async def record(
    visit: Visit,
    *,
    topic: Topic,
    partition: Annotated[int, whole("the partition")],
    offset: Annotated[int, whole("the offset")],
    format: Format = "auto",
) -> ShownRecord:
    """Return a record, and where it stands with share groups.

    :raises NotThere: there is no such record
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    seen = await visit.seen_if_any()
    read = await record_at(visit.cluster, topic, partition, offset)
    if read is None:
        raise NotThere(f"There is no record at offset {offset} of {topic}-{partition}.")
    groups = _sharing_groups(seen, topic)
    (shown,) = await _with_standing(visit.cluster, groups, topic, [read])
    return replace(shown, letter=_letter(read))


def _letter(record: ShownRecord) -> ShownLetter | None:
    headers = tuple(record.headers)
    letter = parse_letter(
        WholeRecord(record.topic, record.partition, record.offset, None, None, headers, 0, "", 0)
    )
    if letter is None:
        return None
    return ShownLetter(
        *letter.source,
        letter.source_offset,
        letter.group_id,
        letter.delivery_count,
        letter.message,
        letter.attempt,
        letter.worker,
        letter.exception,
        letter.traceback,
    )


def _filter(key: str, value: str, header: str) -> Filter:
    texts = Filter(key, value, header)
    if len(urlencode(texts._asdict())) > MAX_FILTERS_BYTES:
        raise BadRequest(
            f"The filters are too long: at most {MAX_FILTERS_BYTES} bytes as part of an address."
        )
    return texts


def positions_of(text: str) -> dict[int, int]:
    """Parse partitions with their offsets.

    :raises BadRequest: the text is no such list
    """
    try:
        pairs = (pair.split(":") for pair in text.split(",") if pair)
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise BadRequest("The positions are not PARTITION:OFFSET,…") from None


def next_link(visit: Visit, query: Query, page: FoundRecords) -> str | None:
    """Return the address of the next page of records; None if there is none.

    It has a position for each partition that is being read, and begins the others as ``query``: its
    length does not grow with the number of partitions.
    """
    # The newest records end early only if the budget does. All partitions are being read then.
    if page.complete or (query.start == "latest" and len(page.positions) > _MAX_POSITIONS):
        return None
    start = "positions" if page.rest is None else query.start
    return visit.link(
        start=start,
        offset=query.offset if start == "offset" else None,
        time=query.time_ms if start == "time" else None,
        rest=page.rest,
        positions=",".join(f"{number}:{at}" for number, at in sorted(page.positions.items())),
    )


def _sharing_groups(seen: Observation, topic: str) -> list[str]:
    return [group.group_id for group in seen.readers(topic, "share")[:MAX_GROUPS_OF_RECORD]]


async def _with_standing(
    cluster: Cluster, group_ids: Sequence[str], topic: str, records: Sequence[ShownRecord]
) -> list[ShownRecord]:
    """Return records with their standing, without that in groups that cannot be asked for it."""
    keys = [(topic, number) for number in sorted({record.partition for record in records})]
    partitions = dict.fromkeys(group_ids if keys else (), keys)
    states = await states_if_told(cluster, partitions, MAX_SPANS_OF_RECORD)
    return [
        replace(
            record,
            standing=[
                standing(group_id, of_group.get((topic, record.partition)), record.offset)
                for group_id, of_group in states.items()
            ],
        )
        for record in records
    ]


def standing(group_id: str, state: SharePartitionState | None, offset: int) -> Standing:
    """Return the standing of the record at an offset with a group.

    :param state: of the group in the partition; None if the broker did not answer for it
    """
    if state is None or state.start_offset is None:
        return Standing(group_id, "unknown")
    if offset < state.start_offset:
        return Standing(group_id, "finished")
    for span in state.spans or ():
        if span.first_offset <= offset <= span.last_offset:
            return Standing(group_id, span.state, span)
    return Standing(group_id, "unknown" if state.spans is None or state.is_cut else "ahead")
