"""``headrace verify``: verify the checksums of all batches of a data directory."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from headrace.amounts import count_of

from .errors import Failure
from .nouns import command
from .options import arg, data_dir_option
from .output import Output, output_option
from .progress import byte_progress
from .tables import one_line


@command(
    "read all batches of a data directory and verify their checksums and offsets. Nothing is "
    "changed. It may run beside the broker",
    data_dir_option("the broker's data directory"),
    arg("--topic", "TOPIC", "verify only this topic"),
    output_option,
    examples="headrace verify --data-dir /var/lib/headrace",
)
def run(options: Namespace) -> int:
    """Verify the directory and print what is damaged.

    :returns: the exit status: 1 if anything is damaged
    :raises Failure: it cannot be read, or has no such topic
    """
    # A help does not import the log.
    from headrace.log import partition_metadata
    from headrace.log.data_directory import is_partition_name
    from headrace.log.directory_format import FORMAT_FILE
    from headrace.log.recovery import kept_files
    from headrace.log.verify import Verified, log_files, verify_file
    from headrace.topics.catalog import CATALOG_FILE

    directory = os.fspath(options.data_dir)
    if not options.data_dir.is_dir():
        raise Failure(f"{directory} is not a directory")
    verified = Verified()
    problems: list[dict[str, Any]] = []
    try:
        is_live = _is_in_use(directory)
        names = [
            name
            for name in sorted(os.listdir(directory))
            if is_partition_name(name)
            and os.path.isdir(f"{directory}/{name}")
            and options.topic in (None, name.rpartition("-")[0])
        ]
        set_aside = kept_files(directory, names)
        files = log_files(directory, names)
        if not names and options.topic is not None:
            raise Failure(f"{directory} has no partition of topic '{options.topic}'")
        if not files and not {FORMAT_FILE, CATALOG_FILE} & set(os.listdir(directory)):
            raise Failure(f"{directory} is not a data directory")
        partitions = {file.partition for file in files}
        verified.partition_count = len(partitions)
        for name in sorted(partitions):
            problem = partition_metadata.problem(f"{directory}/{name}")
            if problem is not None:
                problems.append({"problem": problem})
        with byte_progress("Verifying", sum(file.size_bytes for file in files)) as advance:
            for file in files:
                problems += (
                    {**damage._asdict(), "problem": str(damage), "partition": file.partition}
                    for damage in verify_file(file, is_live=is_live, verified=verified)
                )
                advance(file.size_bytes)
    except OSError as error:
        raise Failure(f"cannot read {error.filename or directory}: {error.strerror}") from error
    output = Output(options.output)
    if output.is_json:
        row = {"data_dir": directory, **vars(verified), "problems": problems, "kept": set_aside}
        output.rows([row])
    else:
        for row in problems:
            print(row["problem"])
        print_kept(set_aside)
        print(
            f"verified {verified.record_count} records in {verified.batch_count} batches, "
            f"{verified.size_bytes} bytes, {verified.partition_count} partitions: "
            f"{count_of(len(problems), 'problem') if problems else 'no problems'}"
        )
    return 1 if problems else 0


def print_kept(paths: Sequence[str]) -> None:
    """Print the files that recoveries have kept."""
    for path in paths:
        print(f"{one_line(path)} is not part of the log: a recovery has set it aside, as damaged")


def _is_in_use(directory: str) -> bool:
    """Return True if a broker holds the directory, so that files change while they are read."""
    from headrace.log import directory_lock

    try:
        lock = directory_lock.take_shared(directory)
    except directory_lock.DirectoryInUse:
        return True
    if lock is not None:
        os.close(lock)
    return False
