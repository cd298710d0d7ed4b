"""``headrace restore``: copy a backup to a new data directory."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from headrace.backup.commands import restore

from .copying import copy_options, progress, run_copy
from .options import data_dir_option


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Copy a backup to a new data directory, and check it against its checksums."
    )
    parser.add_argument("source", type=Path, metavar="BACKUP", help="directory of the backup")
    data_dir_option(parser, "data directory to create, or an empty one")
    copy_options(parser)


def run(options: Namespace) -> int:
    """Restore the backup.

    :returns: the exit status
    :raises Failure: it failed
    """
    return run_copy(
        options,
        lambda: restore(
            str(options.source),
            str(options.data_dir),
            progress(options),
            verify=not options.no_verify,
        ),
        "restored",
    )
