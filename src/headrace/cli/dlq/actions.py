"""The actions of ``headrace dlq``."""

from __future__ import annotations

import base64
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from headrace.cli.client_options import client_config, must_answer
from headrace.cli.errors import Failure
from headrace.cli.perf.report import Bar
from headrace.cli.tables import Column, as_json, json_line, table
from headrace.client.dead_letters.letters import DeadLetter, LetterFilter
from headrace.client.dead_letters.originals import Evidence
from headrace.client.dead_letters.queues import QueueSummary, count_letters, find_queues
from headrace.client.dead_letters.reading import read_letters
from headrace.client.dead_letters.redrive import Redrive, RedriveCounts, RedriveOptions
from headrace.client.errors import ClientError

from .defaults import DEFAULT_MAX_REDRIVES, DEFAULT_PREFIX, DEFAULT_SCAN, DEFAULT_SHOWN

_MAX_SHOWN_CHARS = 100
_ENDED_BY_SIGNAL = 128


class _Stop(threading.Event):
    """An event that SIGINT and SIGTERM set."""

    status = 0

    def on_signal(self, number: int, _: object) -> None:
        self.status = _ENDED_BY_SIGNAL + number
        self.set()


def execute(options: Namespace) -> int:
    """Execute the action.

    :returns: the exit status
    :raises Failure: it failed
    """
    config = client_config(options)
    must_answer(config)
    stop = _Stop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.on_signal) for number in numbers}
    try:
        _ACTIONS[options.action](options, config, stop)
    except ClientError as error:
        raise Failure(str(error)) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return stop.status


def _list(options: Namespace, config: Mapping[str, Any], stop: _Stop) -> None:
    prefix = DEFAULT_PREFIX if options.prefix is None else options.prefix
    queues = find_queues(config, options.queues, prefix)
    found: list[QueueSummary] = []
    with Bar("counting letters", max(1, len(queues))) as bar:
        for queue, groups in queues.items():
            if stop.is_set():
                return
            found.append(count_letters(config, queue, groups, stop, options.scan or DEFAULT_SCAN))
            bar.update(len(found), queue)
    if options.json:
        print(as_json(map(_summary, found)))
        return
    columns = [
        Column(title, len(title))
        for title in (
            "QUEUE",
            "GROUP",
            "SOURCE",
            "LETTERS",
            "PENDING",
            "OLDEST",
            "NEWEST",
            "REASON",
        )
    ]
    rows: list[list[object]] = []
    for one in found:
        for (group, source, message), count in sorted(one.counts.items(), key=str):
            times = [_time(count.oldest_ms), _time(count.newest_ms)]
            rows.append([one.queue, group, source, count.letters, count.pending, *times, message])
        if not one.counts:
            groups_text = ",".join(one.groups) or None
            rows.append([one.queue, groups_text, None, 0, 0, None, None, None])
    print(table(columns, rows))
    for one in found:
        if one.read < one.records:
            print(
                f"{one.queue}: among the newest {one.read} of {one.records} records (--scan)",
                file=sys.stderr,
            )
        if one.not_letters:
            print(f"{one.queue}: {one.not_letters} are not dead letters", file=sys.stderr)


def _summary(one: QueueSummary) -> dict[str, Any]:
    return {
        "queue": one.queue,
        "partitions": one.partitions,
        "groups": list(one.groups),
        "records": one.records,
        "read": one.read,
        "not_letters": one.not_letters,
        "letters": [
            {
                "group": group,
                "source": source,
                "reason": message,
                "letters": count.letters,
                "pending": count.pending,
                "oldest_ms": count.oldest_ms,
                "newest_ms": count.newest_ms,
            }
            for (group, source, message), count in sorted(one.counts.items(), key=str)
        ],
    }


def _filter(options: Namespace) -> LetterFilter:
    return LetterFilter(
        sources=tuple(options.source),
        groups=tuple(options.group),
        reason=options.reason,
        key=None if options.key is None else options.key.encode(),
        partitions=tuple(options.partition),
        from_offset=options.from_offset or 0,
        to_offset=options.to_offset,
        from_ms=options.from_time,
        to_ms=options.to_time,
    )


def _show(options: Namespace, config: Mapping[str, Any], stop: _Stop) -> None:
    (queue,) = options.queues
    shown = options.max_messages or DEFAULT_SHOWN
    letters = read_letters(config, queue, _filter(options), stop, max_letters=shown)
    if options.json:
        print(as_json(map(_letter, letters)))
        return
    titles = ("PARTITION", "OFFSET", "TIME", "SOURCE", "GROUP", "DELIVERIES", "REDRIVES")
    columns = [Column(title, len(title)) for title in (*titles, "KEY", "VALUE", "REASON")]
    rows = [
        [
            one.partition,
            one.offset,
            _time(one.timestamp_ms),
            f"{one.source[0]}-{one.source[1]}@{one.source_offset}",
            one.group_id,
            one.delivery_count,
            one.redrives,
            _text(one.key),
            _text(one.value) if one.has_content else "(gone)",
            one.message,
        ]
        for one in letters
    ]
    print(table(columns, rows))


def _letter(one: DeadLetter) -> dict[str, Any]:
    return {
        "queue": one.queue,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "source": one.source[0],
        "source_partition": one.source[1],
        "source_offset": one.source_offset,
        "group": one.group_id,
        "delivery_count": one.delivery_count,
        "reason": one.message,
        "redrives": one.redrives,
        "has_content": one.has_content,
        **_json_field("key", one.key),
        **_json_field("value", one.value),
        "headers": [{"key": name, **_json_field("value", value)} for name, value in one.headers],
    }


def _json_field(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data or b"").decode()}


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data[: 4 * _MAX_SHOWN_CHARS].decode(errors="replace")
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):  # a producer may write any timestamp
        return str(at_ms)


def _redrive(options: Namespace, config: Mapping[str, Any], stop: _Stop) -> None:
    (queue,) = options.queues
    limits = RedriveOptions(
        max_redrives=options.max_redrives or DEFAULT_MAX_REDRIVES,
        records_per_s=options.rate,
        max_records=options.max_messages,
        settle_skipped=options.settle_skipped,
        position_group=options.position_group,
    )
    redrive = Redrive(config, queue, _filter(options), limits)
    action: Callable[..., RedriveCounts] = redrive.run if options.execute else redrive.plan
    bar: Bar | None = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = Bar(f"redriving {queue}" if options.execute else f"reading {queue}", total)
            bar.__enter__()
        bar.update(done, "letters")

    try:
        counts = action(stop, progress)
    finally:
        if bar is not None:
            bar.__exit__(None, None, None)
    if options.json:
        print(json_line(_result(options, redrive, counts)))
    else:
        _print_result(options, counts)
    if counts.stopped:
        print("headrace dlq: interrupted; the next run continues from here", file=sys.stderr)


def _result(options: Namespace, redrive: Redrive, counts: RedriveCounts) -> dict[str, Any]:
    return {
        "queue": options.queues[0],
        "executed": options.execute,
        "position_group": redrive.group_id,
        "redriven": dict(sorted(counts.redriven.items())),
        "not_compared": dict(sorted(counts.uncompared.items())),
        "samples": [
            {
                "source": sample.source,
                "source_partition": sample.source_partition,
                "source_offset": sample.source_offset,
                **_json_field("key", sample.key),
                **_json_field("value", sample.value),
                "content": sample.evidence.value,
            }
            for sample in counts.samples
        ],
        "skipped": [
            {"source": source, "reason": reason, "letters": count}
            for (source, reason), count in sorted(counts.skipped.items())
        ],
        "not_selected": counts.unmatched,
        "done_before": counts.done_before,
        "not_letters": counts.not_letters,
        "finished": not counts.stopped,
    }


def _print_result(options: Namespace, counts: RedriveCounts) -> None:
    would = "" if options.execute else "would be "
    rows: list[list[object]] = [
        [source, count, f"{would}redriven"] for source, count in sorted(counts.redriven.items())
    ]
    rows += [
        [source, count, f"of these {evidence}"]
        for evidence, kind in ((Evidence.UNCOMPARED, counts.uncompared),)
        for source, count in sorted(kind.items())
    ]
    rows += [
        [source, count, f"{would}skipped: {reason}"]
        for (source, reason), count in sorted(counts.skipped.items())
    ]
    rows += [
        [None, count, text]
        for count, text in (
            (counts.unmatched, "not selected"),
            (counts.done_before, "done before"),
            (counts.not_letters, "not dead letters"),
        )
        if count
    ]
    if not rows:
        print("no letters are pending")
        return
    print(table([Column("SOURCE"), Column("LETTERS", 7), Column("OUTCOME", None)], rows))
    if not options.execute:
        if counts.samples:
            columns = [Column(title, len(title)) for title in ("SAMPLE", "KEY", "VALUE", "CONTENT")]
            samples = [
                [
                    f"{sample.source}-{sample.source_partition}@{sample.source_offset}",
                    _text(sample.key),
                    _text(sample.value),
                    sample.evidence,
                ]
                for sample in counts.samples
            ]
            print(table(columns, samples))
        print("nothing is done without --execute", file=sys.stderr)


_ACTIONS: Mapping[str, Callable[[Namespace, Mapping[str, Any], _Stop], None]] = {
    "list": _list,
    "show": _show,
    "redrive": _redrive,
}
