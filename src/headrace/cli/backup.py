"""``headrace backup``: copy the data directory of a running or stopped broker; and what it has in
common with ``headrace restore``.
"""

from __future__ import annotations

import dataclasses
import signal
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from headrace.amounts import size

from .errors import Failure
from .nouns import command
from .options import arg, data_dir_option, switch
from .output import Output, output_option
from .progress import byte_progress
from .tables import one_line, tell

if TYPE_CHECKING:
    from headrace.backup.commands import Report


COPY_OPTIONS = (
    output_option,
    switch("--no-verify", "do not read the copy back to compare checksums"),
    arg(
        "--max-bytes-per-second",
        "BYTES",
        "read and write no faster, so that others can use the disk",
    ),
)


@command(
    "copy the data directory of a running or stopped broker to a directory from which a broker can "
    "start",
    arg("target", "BACKUP", "directory to create, or an empty one"),
    data_dir_option("the broker's data directory, on this machine"),
    switch(
        "--verify-records",
        "verify the checksums of all records in the copy, too; exit with 1 if any is wrong",
    ),
    *COPY_OPTIONS,
    examples="headrace backup /backups/monday --data-dir /var/lib/headrace",
)
def run(options: Namespace) -> int:
    """Make the backup.

    :returns: the exit status
    :raises Failure: it failed
    """
    from headrace.backup.commands import backup  # a help does not import the broker

    copy = partial(backup, check_records=options.verify_records)
    return run_copy(options, copy, options.data_dir, options.target, "backed up")


def run_copy(
    options: Namespace, copy: Callable[..., Report], source: Path, target: Path, done: str
) -> int:
    """Run a copy and print its report. SIGTERM, SIGHUP and Ctrl-C delete an unfinished copy.

    :param copy: a function of :mod:`headrace.backup.commands`
    :param done: the verb for the report
    :returns: the exit status: 1 if records are damaged
    :raises Failure: it failed
    """
    from headrace.backup.commands import paced
    from headrace.backup.directory import BackupError

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    limit = options.max_bytes_per_second
    stage = byte_progress if limit is None else paced(byte_progress, limit)
    try:
        report = copy(str(source), str(target), stage, verify=not options.no_verify)
    except BackupError as error:
        raise Failure(str(error)) from error
    for name in report.offline:
        tell(f"warning: {name} is offline, and its last records may be damaged")
    for problem in report.damaged:
        tell(f"warning: {problem}")
    output = Output(options.output)
    if output.is_json:
        output.rows([dataclasses.asdict(report)])
    else:
        print(
            f"{done} {report.topic_count} topics with {report.partition_count} used partitions, "
            f"{size(report.size_bytes)}, in {report.seconds:.1f} s: {one_line(report.target)}"
        )
    return 1 if report.damaged else 0


def _stop(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
