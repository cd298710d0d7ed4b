"""The configuration of a broker and its groups, as the packages below it see it."""

from __future__ import annotations

from typing import Protocol

Value = bool | int | float | str | tuple[str, ...]
"""A parsed value: a tuple for LIST, a str for STRING, CLASS and PASSWORD."""


def parts(text: str | None) -> list[str]:
    """Return the entries of a list, also empty ones between commas."""
    return [part.strip() for part in text.split(",")] if text and text.strip() else []


def entries(text: str | None) -> list[str]:
    """Return the entries of a list, without empty ones."""
    return list(filter(None, parts(text)))


class Configuration(Protocol):
    """The values of configs, by Kafka's names. They may change while the broker runs.

    Those of a group are as set for the group, or else for the broker. ``get_str`` and
    ``group_value`` return the value as Kafka prints it. A missing one is None, or an empty list.
    """

    def value(self, name: str) -> Value | None: ...
    def get_int(self, name: str) -> int: ...
    def get_bool(self, name: str) -> bool: ...
    def get_str(self, name: str) -> str | None: ...
    def get_list(self, name: str) -> tuple[str, ...]: ...
    def group_int(self, group_id: str, name: str) -> int: ...
    def group_list(self, group_id: str, name: str) -> tuple[str, ...]: ...
    def group_value(self, group_id: str, name: str) -> str: ...
