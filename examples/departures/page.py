"""The page of ``headrace ui`` beside the pipeline: it shows the backlogs as they come and go."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from rich.console import Console

_READY = "the page is at "
_PATIENCE_S = 10


@contextlib.contextmanager
def page(bootstrap_servers: str) -> Iterator[str | None]:
    """Serve the page until the end of the block.

    :returns: its address; None if it cannot be served, for example without ``headrace[ui]``
    """
    words = ("ui", "--bootstrap-server", bootstrap_servers, "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *words, "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield line.removeprefix(_READY).strip() if line.startswith(_READY) else None
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def keep(address: str | None, console: Console) -> None:
    """Print the address of the page. On a terminal keep it until Enter."""
    if address is None:
        return
    console.print(f"page     {address}", highlight=False)
    if sys.stdin.isatty() and console.is_terminal:
        console.print("it has the backlogs of the run; press Enter to end")
        with contextlib.suppress(KeyboardInterrupt, EOFError):
            input()
