"""Defaults of the options. They are used where an option is not given at all."""

from __future__ import annotations

DEFAULT_PREFIX = "dlq."
DEFAULT_SCAN = 10_000
DEFAULT_SHOWN = 20
DEFAULT_MAX_REDRIVES = 3
