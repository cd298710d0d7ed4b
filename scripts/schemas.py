"""Read the message definitions out of Apache Kafka's jars and print them as a table of facts.

    python scripts/schemas.py JAR... > src/headrace/protocol/schemas.txt
    python scripts/schemas.py --stub request response > src/headrace/protocol/api.pyi
    python scripts/schemas.py --stub coordinator-key coordinator-value data \\
        > src/headrace/protocol/stored.pyi

A message is a block of lines. The first names its kind, API key (or record type, or -), name, valid
and flexible versions. Each other line is a field: name, type and versions, then ``null VERSIONS``,
``tag NUMBER VERSIONS`` and ``= DEFAULT`` where they apply. The fields of a structure are indented
below the first field with it. A line ``struct NAME`` defines one that several fields share.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

from headrace.protocol import schema

COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def is_served(message: dict[str, Any]) -> bool:
    """Return whether brokers serve a request or its response, or write or read the data."""
    if message["type"] == "request":
        return "broker" in message.get("listeners", ())
    return message["type"] in {"response", "data", "coordinator-key", "coordinator-value"}


def messages(jar: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        return [
            json.loads(COMMENT.sub("", archive.read(name).decode()))
            for name in sorted(archive.namelist())
            if name.endswith(".json") and "message/" in name
        ]


def lines(message: dict[str, Any]) -> list[str]:
    head = [
        message["type"],
        str(message.get("apiKey", "-")),
        message["name"],
        message["validVersions"],
        message.get("flexibleVersions", "none"),
    ]
    shared = message.get("commonStructs", ())
    block = [" ".join(head)]
    for struct in shared:
        block += [f" struct {struct['name']}", *fields(struct["fields"], 2)]
    return block + fields(message["fields"], 1)


def fields(items: list[dict[str, Any]], depth: int) -> list[str]:
    block = []
    for field in items:
        versions = field.get("versions", field.get("taggedVersions", "0+"))
        words = [field["name"], field["type"], versions]
        if "nullableVersions" in field:
            words += ["null", field["nullableVersions"]]
        if "tag" in field:
            words += ["tag", str(field["tag"]), field["taggedVersions"]]
        if "default" in field:
            default = field["default"]
            words += ["=", str(default).strip().lower() if default is not None else "null"]
        block.append(" " * depth + " ".join(words).rstrip())
        block += fields(field.get("fields", []), depth + 1)
    return block


_TYPES = {
    "bool": "bool",
    "uuid": "UUID | None",
    "float64": "float",
    "string": "str",
    "bytes": "bytes | memoryview",
    "records": "Any",
}


def stub(kinds: list[str]) -> Iterator[str]:
    """Yield the lines of a stub of all messages of some kinds, for type checkers."""
    yield "# Written by scripts/schemas.py --stub."
    if "response" in kinds:
        yield "from collections.abc import Collection, Sequence"
        yield "from typing import Any"
    else:
        yield "from collections.abc import Sequence"
    yield "from uuid import UUID"
    yield ""
    yield "from .schema import Message"
    for name in schema.names():
        message = schema.schema(name)
        if message.kind not in kinds:
            continue
        yield ""
        yield from stub_of(message, message.structures[name], 0)


def stub_of(message: schema.Schema, structure: schema.Structure, depth: int) -> Iterator[str]:
    """Yield the lines of one structure."""
    indent = "    " * depth
    yield f"{indent}class {structure.name}(Message):"
    if not depth:
        for nested in message.structures.values():
            if nested is not structure:
                yield from stub_of(message, nested, 1)
    hints = {field.name: hint(message, field) for field in structure.fields}
    # A request has what was read; a response is given any collection, which is written once.
    if message.kind == "response":
        hints = {name: text.replace("Sequence[", "Collection[") for name, text in hints.items()}
    for name, text in hints.items():
        yield f"{indent}    {name}: {text}"
    parameters = "".join(f", {name}: {text} = ..." for name, text in hints.items())
    yield f"{indent}    def __init__(self{parameters}) -> None: ..."


def hint(message: schema.Schema, field: schema.Field) -> str:
    """Return the type of a field."""
    nested = field.type in message.structures
    if message.kind == "coordinator-value" and field.type == "bytes":
        return "bytes"
    text = _TYPES.get(field.type) or (f"{message.name}.{field.type}" if nested else "int")
    if field.is_array:
        kind = "tuple[{}, ...]" if message.kind == "coordinator-value" else "Sequence[{}]"
        text = kind.format(text)
    can_be_null = field.nullable.last >= field.nullable.first or field.default == "None"
    return text if not can_be_null or text.endswith(("None", "Any")) else f"{text} | None"


def main(jars: list[str]) -> None:
    if jars[0] == "--stub":
        print("\n".join(stub(jars[1:])))
        return
    found = [message for jar in jars for message in messages(jar)]
    served = {
        message.get("apiKey")
        for message in found
        if message["type"] == "request" and is_served(message)
    }
    blocks = []
    for message in found:
        if message["validVersions"] == "none" or not is_served(message):
            continue
        if message["type"] == "response" and message["apiKey"] not in served:
            continue
        blocks.append("\n".join(lines(message)))
    print("\n\n".join(sorted(blocks)))


if __name__ == "__main__":
    main(sys.argv[1:])
