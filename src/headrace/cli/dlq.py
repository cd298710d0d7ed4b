"""``headrace dlq``: list, show and redrive the dead letters of share groups (KIP-1191)."""

from __future__ import annotations

import signal
import threading
from argparse import Namespace

from headrace.log_lines import printable
from headrace.patterns import meant
from headrace.positions import EARLIEST, LATEST

from .client_options import client_config, client_options
from .clients import letters, reading, redrive
from .errors import BadUsage
from .nouns import Noun
from .options import DRY_RUN, YES, arg, repeatable, switch
from .output import Output, Row, confirm, output_option, signals_handled
from .progress import count_progress
from .tables import tell

NOUN = Noun()
_MAX_SHOWN_CHARS = 100
_MAX_TRACEBACK_LINES = 200
_ENDED_BY_SIGNAL = 128
_CONNECTION = (output_option, client_options)
_FILTERS = (
    arg("queue", "QUEUE", "the topic with the letters"),
    repeatable("--source", "TOPIC", "letters of this topic's records"),
    repeatable("--group", "GROUP", "letters of this share group"),
    arg("--reason", "REGEX", "letters whose reason has a match"),
    arg("--key", "TEXT", "letters of records with this key"),
    repeatable("-p --partition", "N", "of the queue", type=int),
    arg("--from", "POSITION", "from an offset or a time", dest="start"),
    arg("--to", "POSITION", "before an offset or a time", dest="end"),
)


class _Stop(threading.Event):
    """An event that SIGINT and SIGTERM set."""

    status = 0

    def on_signal(self, number: int, _: object) -> None:
        self.status = _ENDED_BY_SIGNAL + number
        self.set()


@NOUN.verb(
    "list",
    "count the letters of dead-letter queues",
    arg("names", "QUEUE", "default: all", nargs="*"),
    arg(
        "--scan",
        "N",
        "count among the newest N records of a queue (default: 10000)",
        default=10_000,
    ),
    *_CONNECTION,
    examples="headrace dlq list\nheadrace dlq list dlq.orders -o json",
)
def list_queues(options: Namespace) -> None:
    """Print queues, with a row for each group, source and reason."""
    config, endless = client_config(options), threading.Event()
    queues, listed = reading.find_queues(config)
    rows: list[Row] = []
    for name in options.names or queues:
        if name not in queues:  # it may have letters, of groups that are gone
            hint = meant(name, queues) or "headrace dlq list without a name shows all"
            tell(f"headrace dlq list: '{name}' is the queue of no group; {hint}")
        summary = reading.count_letters(config, name, queues.get(name, ()), endless, options.scan)
        if summary.read < summary.records:
            tell(
                f"headrace dlq list: only the newest {summary.read:,} of {summary.records:,} "
                f"records of '{name}' are counted: --scan {summary.records} counts all"
            )
        counts = sorted(summary.counts.items(), key=str)
        rows += [
            {
                "queue": name,
                "group_id": group,
                "source_topic": source or None,
                "letter_count": count.letters,
                "pending_count": count.pending,
                "oldest_ms": count.oldest_ms if count.letters else None,
                "newest_ms": count.newest_ms if count.letters else None,
                "reason": reason,
                "partition_count": summary.partitions,
                "groups": list(summary.groups),
                "record_count": summary.records,
                "read_count": summary.read,
                "other_count": summary.not_letters,
            }
            for (group, source, reason), count in (
                counts or [((None, "", None), reading.LetterCount())]
            )
        ]
    wide = ("partition_count", "groups", "record_count", "read_count", "other_count")
    nothing = "there are no dead-letter queues, or the user may not describe them"
    if listed.advice is not None:
        tell(listed.advice)
    problems = (f"not all brokers answered: {error}" for error in listed.errors)
    Output(options.output).rows(rows, wide=wide, nothing=nothing, problems=problems)


def _selection(options: Namespace) -> letters.LetterFilter:
    first, last = options.start or EARLIEST, options.end or LATEST
    if first == LATEST:
        raise BadUsage("--from latest selects no letters: give an offset or a time")
    if min(first.offset or 0, last.offset or 0) < 0:
        raise BadUsage("--from and --to take no negative offset")
    return letters.LetterFilter(
        sources=tuple(options.source),
        groups=tuple(options.group),
        reason=options.reason,
        key=None if options.key is None else options.key.encode(),
        partitions=tuple(options.partition),
        from_offset=first.offset or 0,
        to_offset=last.offset,
        from_ms=first.time_ms,
        to_ms=last.time_ms,
    )


@NOUN.verb(
    "show",
    "show the letters of a queue",
    *_FILTERS,
    arg("--max", "N", "at most N (default: 20)", default=20),
    *_CONNECTION,
    examples="headrace dlq show dlq.orders --reason rejected --max 5\n"
    "headrace dlq show dlq.orders --from -1h -o jsonl",
)
def show(options: Namespace) -> None:
    """Print letters."""
    from .console.json_records import json_bytes  # imports msgspec

    config, selection = client_config(options), _selection(options)
    output, endless = Output(options.output), threading.Event()
    chosen = list(
        reading.read_letters(config, options.queue, selection, endless, max_letters=options.max)
    )
    data = json_bytes if output.is_json else _text
    rows = [
        {
            "queue": letter.queue,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp_ms": letter.timestamp_ms,
            "source_topic": letter.source[0],
            "source_partition": letter.source[1],
            "source_offset": letter.source_offset,
            "group_id": letter.group_id,
            "delivery_count": letter.delivery_count,
            "redrive_count": letter.redrives,
            "key": data(letter.key),
            "value": data(letter.value) if letter.has_content or output.is_json else "(gone)",
            "reason": letter.message,
            "attempt": letter.attempt,
            "worker": letter.worker,
            "exception": letter.exception,
            **({"traceback": letter.traceback} if output.is_json else {}),
            "has_content": letter.has_content,
            "headers": [[name, data(value)] for name, value in letter.headers],
        }
        for letter in chosen
    ]
    wide = ("queue", "has_content", "headers", "attempt", "worker", "exception")
    output.rows(rows, wide=wide, nothing="there are no such letters")
    for letter in () if output.is_json else chosen:
        if letter.traceback is not None:
            title = (
                f"{letter.queue}-{letter.partition} offset {letter.offset}: {letter.exception} in "
                f"attempt {letter.attempt}, by worker {letter.worker}"
            )
            print(printable(title))
            for line in letter.traceback.splitlines()[-_MAX_TRACEBACK_LINES:]:
                print(f"    {printable(line)}")


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data[: 4 * _MAX_SHOWN_CHARS].decode(errors="replace")
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"


@NOUN.verb(
    "redrive",
    "produce the records of letters to their topics again, after a look at the plan",
    *_FILTERS,
    arg("--max", "N", "at most N letters"),
    arg("--rate", "N", "at most N records per second"),
    arg(
        "--max-redrives",
        "N",
        "skip a record that was redriven N times before, by its header "
        "headrace.redrive.count (default: 3)",
        default=3,
    ),
    switch("--settle-skipped", "skipped letters count as done: no later redrive tries them"),
    DRY_RUN,
    YES,
    *_CONNECTION,
    examples="headrace dlq redrive dlq.orders --source orders --dry-run\n"
    "headrace dlq redrive dlq.orders --source orders --rate 100\n"
    "headrace dlq redrive dlq.orders --key 4711 --yes",
)
def redrive_letters(options: Namespace) -> int:
    """Show what would be done, ask, and do it.

    :raises Failure: it failed, or the answer is no
    """
    import asyncio

    from headrace.client.config import check_access, read_config

    limits = redrive.RedriveOptions(
        options.max_redrives, options.rate, options.max, options.settle_skipped
    )
    dry_run = options.dry_run
    config = client_config(options)
    run = redrive.Redrive(config, options.queue, _selection(options), limits)
    asyncio.run(check_access(read_config(config)))  # Ctrl-C ends this wait
    stop = _Stop()
    for executes in [False] * (dry_run or not options.yes) + [True] * (not dry_run):
        with signals_handled(stop.on_signal, signal.SIGINT, signal.SIGTERM):
            what = f"{'redriving' if executes else 'reading'} letters of {options.queue}"
            with count_progress(what) as progress:
                counts = (run.run if executes else run.plan)(stop, progress)
            _print_counts(Output(options.output), counts, executes=executes)
        if stop.status:
            tell("interrupted" + "; the next run continues from here" * executes)
            return stop.status
        if not executes and not dry_run:
            lines = [f"{source}: {count} records" for source, count in counts.redriven.items()]
            if options.settle_skipped and counts.skipped:
                lines.append(f"{counts.skipped.total()} letters that count as done")
            if not lines:
                break
            confirm("Produce the records to their topics again?", lines, yes=False)
    return 0


def _print_counts(output: Output, counts: redrive.RedriveCounts, *, executes: bool) -> None:
    others = ((None, count, outcome, None) for outcome, count in sorted(counts.others.items()))
    output.rows(
        [
            {
                "source_topic": source,
                "letter_count": count,
                "outcome": f"would be {outcome}"
                if not executes and outcome in ("redriven", "skipped")
                else outcome,
                "reason": reason,
            }
            for source, count, outcome, reason in (*counts.outcomes(), *others)
        ],
        nothing="no letters are pending",
    )
    if not executes and not output.is_json:
        output.rows(
            {
                "sample": sample.place,
                "key": _text(sample.key),
                "value": _text(sample.value),
                "content": evidence,
            }
            for sample, evidence in counts.samples
        )
