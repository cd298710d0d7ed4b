"""The log of commands that run until they are stopped."""

from __future__ import annotations

import logging
import sys

from headrace.log_lines import make_safe


def log_to_stderr() -> None:
    """Write log lines to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(make_safe)  # lines of other libraries, too
    logging.basicConfig(level=logging.INFO, handlers=[handler])
