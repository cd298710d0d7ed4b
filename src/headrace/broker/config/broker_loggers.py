"""The loggers of the broker, the resource type BROKER_LOGGER (KIP-412).

They are the loggers of this package in Python's logging. Kafka's tools expect a logger ``root``: it
is the parent of the others, ``headrace``. Levels are changed in this process only, until it ends.
Messages are Kafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from headrace.log_lines import get_logger
from headrace.protocol.errors import Refusal, invalid_config, invalid_request

ROOT = "root"
"""Kafka's name for the parent of all loggers."""

_PACKAGE = "headrace"
_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels as Python's, in rising order."""


def levels() -> list[tuple[str, str]]:
    """Return the name and the level in effect of each logger, sorted by name."""
    return sorted((name, _level_name(logger)) for name, logger in _loggers())


def check(changes: Mapping[str, str | None]) -> Refusal | None:
    """Return the error for changes of levels, None if they are valid."""
    names = {name for name, _ in _loggers()}
    for name, level in changes.items():
        if name not in names:
            return invalid_config(f"Logger {name} does not exist!")
        if level is None and name == ROOT:
            return invalid_request(f"Removing the log level of the {ROOT} logger is not allowed")
        if level is not None and level not in _LEVELS:
            return invalid_config(
                f"Cannot set the log level of {name} to {level} as it is not a supported log "
                f"level. Valid log levels are {', '.join(sorted(_LEVELS))}"
            )
    return None


def apply(changes: Mapping[str, str | None]) -> None:
    """Set the levels of loggers; None makes one follow its parent again."""
    loggers = dict(_loggers())
    for name, level in changes.items():
        loggers[name].setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    """Yield Kafka's name of each logger that exists, and the logger."""
    yield ROOT, get_logger(_PACKAGE)
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if name.startswith(f"{_PACKAGE}.") and isinstance(logger, logging.Logger):
            yield name, logger


def _level_name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, level in _LEVELS.items() if effective <= level), "FATAL")
