"""``headrace backup``: copy the data directory of a running or stopped broker."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from .copying import COPY_OPTIONS, progress, run_copy
from .nouns import arg, command, data_dir_option, switch


@command(
    "copy the data directory of a running or stopped broker to a directory from which a broker can "
    "start",
    arg("target", type=Path, metavar="BACKUP", help="directory to create, or an empty one"),
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
