"""The configs of Apache Kafka 4.4: names, types, defaults, ranges, and its error messages.

``data/configs.tsv`` declares each config of brokers, topics, groups and client metrics in one line:
its type, default and range, the broker configs that it takes its value from (``synonyms``) and that
bound it (``minimum``, ``maximum``). A config with documentation has that effect here; the others
are accepted and have none. Those of groups that are bounded are in the order of Kafka's checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headrace.coordinators.iso_durations import duration_ms
from headrace.protocol.configuration import Value

_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_INTEGER = re.compile(r"[+-]?[0-9]{1,640}", re.ASCII)  # Python converts that many digits anyway
_THROTTLED_REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class InvalidValue(ValueError):
    """An invalid value of a config. The message is Kafka's."""


class BrokerSynonym(NamedTuple):
    """A broker config from which a topic or a group takes its value.

    :ivar unit: the factor from its unit to that of the other config
    """

    name: str
    unit: int


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The definition of a config.

    :param type: BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD
    :param default: the default as text, None if there is none
    :param range: the valid values in Kafka's notation: ``[0,...]``, ``[1,...,9] or -1``, ``[a, b]``
    :param dynamic: True if it can be changed at run time
    :param internal: True if it is described only while it is set
    :param synonyms: the broker configs whose value it has if it is not set, by precedence
    :param minimum: the broker config with its lowest value, None without one
    :param maximum: the broker config with its highest value, None without one
    :param documentation: its effect, None for a config without effect
    """

    name: str
    type: str
    default: str | None
    range: str
    dynamic: bool
    internal: bool
    synonyms: tuple[BrokerSynonym, ...]
    minimum: str | None
    maximum: str | None
    documentation: str | None

    def parse(self, text: str) -> Value:
        """Parse a value.

        :raises InvalidValue: when the text is not of the config's type or out of its range
        """
        text = text.strip() if self.type != "PASSWORD" else text
        if self.type == "BOOLEAN":
            if text.lower() not in ("true", "false"):
                raise self._invalid(text, "Expected value to be either true or false")
            return text.lower() == "true"
        value: Value = text
        if self.type in _BITS:
            number = integer(text, self.type)
            if number is None:
                raise self._invalid(text, f"Not a number of type {self.type}")
            value = number
        elif self.type == "DOUBLE":
            try:
                value = float(text.replace("_", "?"))  # Java has no underscores in numbers
            except ValueError:
                raise self._invalid(text, "Not a number of type DOUBLE") from None
        elif self.type == "LIST":
            value = tuple(part.strip() for part in text.split(",")) if text else ()
        if self.range:
            self._check(value)
        return value

    def _check(self, value: Value) -> None:
        if isinstance(value, (int, float)):
            self._check_number(value)
        elif self.name == "share.auto.offset.reset":
            self._check_offset_reset(str(value))
        elif isinstance(value, tuple) and self.range == _THROTTLED_REPLICAS:
            self._check_throttled_replicas(value)
        elif isinstance(value, tuple) and self.range == "non-empty values":
            if "" in value:
                raise InvalidValue(f"Configuration '{self.name}' values must not be empty.")
        elif self.range == "non-empty string":
            if not value:
                raise self._invalid(value, "String must be non-empty")
        elif self.range.endswith("]"):
            self._check_choice(value)

    def _check_number(self, value: float) -> None:
        lowest, highest, exception = _bounds(self.range)
        if value == exception:
            return
        if exception is not None and not lowest <= value <= highest:
            message = f"Value must be between {lowest} and {highest} or equal to {exception}"
            raise self._invalid(value, message)
        if value < lowest or math.isnan(value):
            raise self._invalid(value, f"Value must be at least {lowest}")
        if value > highest:
            raise self._invalid(value, f"Value must be no more than {highest}")

    def _check_choice(self, value: Value) -> None:
        names = self.range[self.range.index("[") + 1 : -1].split(", ")
        ignore_case = self.range.startswith("(case insensitive)")
        for name in value if isinstance(value, tuple) else (value,):
            if (str(name).upper() if ignore_case else name) not in names:
                among = " (case insensitive)" if ignore_case else ""
                raise self._invalid(name, f"String must be one of{among}: {', '.join(names)}")

    def _check_offset_reset(self, value: str) -> None:
        if value in ("earliest", "latest"):
            return
        kind, _, duration = value.partition(":")
        if kind == "by_duration":
            with suppress(ValueError):
                duration_ms(duration)
                return
        message = (
            f"Invalid value `{value}` for configuration {self.name}. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise self._invalid(value, message)

    def _check_throttled_replicas(self, value: tuple[str, ...]) -> None:
        if value != ("*",) and not all(re.fullmatch("[0-9]+:[0-9]+", replica) for replica in value):
            shown = f"[{', '.join(value)}]"
            message = (
                f"{self.name} must be the literal '*' or a list of replicas in the following "
                f"format: {self.range}"
            )
            raise self._invalid(shown, message)

    def _invalid(self, value: object, why: str) -> InvalidValue:
        return InvalidValue(f"Invalid value {value} for configuration {self.name}: {why}")


def integer(text: str, type_name: str) -> int | None:
    """Return a number of type SHORT, INT or LONG; None if the text is none."""
    if not _INTEGER.fullmatch(text):
        return None
    number, limit = int(text), 1 << (_BITS[type_name] - 1)
    return number if -limit <= number < limit else None


def render(value: Value) -> str:
    """Return a value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


@cache
def _bounds(text: str) -> tuple[float, float, float | None]:
    """Parse ``[1,...,9] or -1`` to (1, 9, -1)."""
    numbers, _, exception = text.partition("] or ")
    lowest, _, highest = numbers.strip("[]").partition(",...")
    return (
        _number(lowest),
        _number(highest.strip(",")) if highest else math.inf,
        _number(exception) if exception else None,
    )


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


@cache
def config_keys(kind: str) -> Mapping[str, ConfigKey]:
    """Return all configs of a kind (``broker``, ``topic``, ``group`` or ``client-metrics``) by
    name.
    """
    keys = {}
    text = (Path(__file__).parent / "data" / "configs.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith(f"{kind}\t"):
            _, name, type_name, default, value_range, flags, *others = line.split("\t")
            synonyms, minimum, maximum, meaning = others
            parts = (synonym.partition("*") for synonym in synonyms.split())  # NAME or NAME*UNIT
            keys[name] = ConfigKey(
                name=name,
                type=type_name,
                default=None if default == "null" else default,
                range=value_range,
                dynamic="dynamic" in flags or kind != "broker",
                internal="internal" in flags,
                synonyms=tuple(
                    BrokerSynonym(synonym, int(unit or 1)) for synonym, _, unit in parts
                ),
                minimum=minimum or None,
                maximum=maximum or None,
                documentation=meaning or None,
            )
    return keys
