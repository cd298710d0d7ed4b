"""``headrace backup``: copy the data directory of a running or stopped broker."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from headrace.backup.commands import backup

from .copying import copy_options, progress, run_copy
from .options import data_dir_option, flag


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Copy the data directory of a running or stopped broker to a directory from which a broker "
        "can start."
    )
    parser.add_argument(
        "target", type=Path, metavar="BACKUP", help="directory to create, or an empty one"
    )
    data_dir_option(parser, "the broker's data directory, on this machine")
    flag(
        parser,
        "--verify-records",
        "verify the checksums of all records in the copy, too; exit with 1 if any is wrong",
    )
    copy_options(parser)


def run(options: Namespace) -> int:
    """Make the backup.

    :returns: the exit status
    :raises Failure: it failed
    """
    return run_copy(
        options,
        lambda: backup(
            str(options.data_dir),
            str(options.target),
            progress(options),
            verify=not options.no_verify,
            check_records=options.verify_records,
        ),
        "backed up",
    )
