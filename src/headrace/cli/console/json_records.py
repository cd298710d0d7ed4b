"""Records as JSON objects: what ``headrace consume`` prints and ``headrace produce`` reads."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw

from headrace.patterns import meant

if TYPE_CHECKING:
    from headrace.client.records import Record


Headers = list[tuple[str, bytes | None]]

_FIELDS = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "delivery_count")
_ADVICE = "to send the line itself as the value, leave out --json"


class NewRecord(NamedTuple):
    """A record to produce.

    :param partition: None if the partitioner chooses
    :param timestamp_ms: since the epoch; None for now
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


class MalformedLine(ValueError):
    """A line is not a record; the text says why."""


def record_fields(record: Record, *, parse: bool = False) -> dict[str, Any]:
    """Return the object of a record.

    :param parse: a value that is JSON becomes what it means, not its text
    """
    fields = {name: getattr(record, name) for name in _FIELDS}
    if not record.delivery_count:  # it was not read in a share group
        del fields["delivery_count"]
    value = json_bytes(record.value)
    if parse and isinstance(value, str):
        try:
            msgspec.json.decode(value, type=Raw)  # strict: Python also takes NaN
            value = json.loads(value)
            json.dumps(value, allow_nan=False)  # a number may be too large
        except (ValueError, RecursionError):
            value = json_bytes(record.value)
    headers = [[name, json_bytes(content)] for name, content in record.headers]
    return {**fields, "key": json_bytes(record.key), "value": value, "headers": headers}


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON: a text if they are UTF-8, else ``{"base64": …}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """The object of a line. Where a record was is ignored, but the partition."""

    value: Raw
    key: Raw = Raw(b"null")
    headers: dict[str, Raw] | list[tuple[str, Raw]] | None = None
    partition: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    timestamp_ms: Annotated[int, Meta(ge=-1, lt=2**63 - 1)] | None = None
    topic: Raw = Raw()
    offset: Raw = Raw()
    timestamp_type: Raw = Raw()
    delivery_count: Raw = Raw()


_LINE = msgspec.json.Decoder(_Line)


def read_record(line: bytes, *, keep_partitions: bool) -> NewRecord | None:
    """Return the record of a line, None for a blank one.

    A value that is no string is stored as its JSON. Headers are name → value, or a list of pairs.

    :param keep_partitions: use ``partition``
    :raises MalformedLine: it is not such an object
    """
    try:
        text = line.decode("utf-8-sig")
        if not text.strip():
            return None
        fields = _LINE.decode(text)
        pairs = fields.headers.items() if isinstance(fields.headers, dict) else fields.headers
        record = NewRecord(
            _bytes(fields.key),
            _bytes(fields.value),
            [(name, _bytes(value)) for name, value in pairs or ()],
            fields.partition if keep_partitions else None,
            None if fields.timestamp_ms == -1 else fields.timestamp_ms,  # Kafka's for none
        )
    except UnicodeDecodeError:
        raise MalformedLine("it is not UTF-8: JSON lines are") from None
    except RecursionError:
        raise MalformedLine("its JSON is nested too deeply") from None
    except msgspec.MsgspecError as error:
        unknown = re.search("unknown field `(.*)`", str(error))
        hint = meant(unknown[1], _Line.__struct_fields__) if unknown else ""
        is_json = isinstance(error, msgspec.ValidationError)
        why = str(error) if is_json else f"not JSON: {error}"
        raise MalformedLine(f"{why}; {hint or _ADVICE}") from None
    if any("\0" in name for name, _ in record.headers):
        raise MalformedLine("the name of a header has a NUL, at which librdkafka would cut it")
    if record.timestamp_ms == 0:
        raise MalformedLine("timestamp_ms is 0, which librdkafka takes for the present time")
    return record


def _bytes(content: Raw) -> bytes | None:
    """Return a key, a value or the content of a header.

    :raises MsgspecError: it has half a surrogate pair, or is no Base64
    """
    data = bytes(content)
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str).encode()
    if data.startswith(b"{"):
        fields = msgspec.json.decode(data, type=dict[str, Raw])
        if fields.keys() == {"base64"}:
            return msgspec.json.decode(fields["base64"], type=bytes)
    return None if data == b"null" else data
