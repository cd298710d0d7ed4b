"""A broker that answers as it likes: valid responses from the schemas, and odd ones for one API."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from uuid import UUID

from headrace.client.connection import _SUPPORTED
from headrace.protocol.frames import request_header
from headrace.protocol.primitives import compact_length
from headrace.protocol.schema import schema
from tests.kio_messages import response_type
from tests.protocol.shapes import Shape

API_VERSIONS = 18
SUPPORTED = [(schema(name).key, *versions) for name, versions in _SUPPORTED.items()]
"""API key, lowest and highest version of each API that the client supports."""
TOPIC_ID = UUID(int=2**127 + 7)
BASE: Mapping[str, Any] = {
    "host": "127.0.0.1",
    "node_id": 1,
    "broker_id": 1,
    "leader_id": 1,
    "controller_id": 1,
    "cluster_id": "c",
    "cluster_authorized_operations": 1 << 8,
    "error_message": None,
    "member_epoch": 1,
    "group_epoch": 1,
    "assignment_epoch": 1,
    "heartbeat_interval": 1000,
    "acquisition_lock_timeout": 30_000,
    "group_state": "Stable",
    "group_type": "share",
    "protocol_type": "share",
    "protocol_data": "s",
    "assignor_name": "s",
    "records": b"",
    "acquired_records": (),
    "aborted_transactions": (),
    "diverging_epoch": None,
    "current_leader": None,
}

Reply = Callable[[int, int, asyncio.StreamWriter], Awaitable[bytes | None]]
"""Takes the API key, the version, and the connection; returns the response after the correlation
id, or None to send nothing.
"""


class HostileBroker:
    """A broker whose responses are made up.

    :param odd: replaces the responses of one API
    :param offered: API key, lowest and highest version of each API that it offers
    :ivar asked: the APIs and versions of the requests, in their order
    """

    def __init__(
        self,
        odd_api: int | None = None,
        odd: Reply | None = None,
        offered: Collection[tuple[int, int, int]] = SUPPORTED,
    ) -> None:
        self._odd_api, self._odd, self._offered = odd_api, odd, offered
        self._server: asyncio.Server | None = None
        self.asked: list[tuple[int, int]] = []
        self.port = 0

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> HostileBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def shape(self, api_key: int, version: int) -> Shape:
        """Return the responses of one version."""
        message_type = response_type(api_key, version)
        base = {**BASE, "port": self.port}
        return Shape(api_key, version, TOPIC_ID, message_type, base)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header = request_header(await reader.readexactly(size))
                self.asked.append((header.api_key, header.api_version))
                correlation_id = struct.pack(">i", header.correlation_id)
                if header.api_key == self._odd_api and self._odd is not None:
                    body = await self._odd(header.api_key, header.api_version, writer)
                elif header.api_key == API_VERSIONS:
                    body = api_versions(self._offered)
                else:
                    body = self.shape(header.api_key, header.api_version).body()
                if body is not None:
                    payload = correlation_id + body
                    writer.write(struct.pack(">i", len(payload)) + payload)
                    await writer.drain()
        writer.close()


def api_versions(offered: Collection[tuple[int, int, int]]) -> bytes:
    """Return the response to ApiVersions 3 without the correlation id."""
    entries = b"".join(struct.pack(">hhhB", *one, 0) for one in offered)
    return struct.pack(">h", 0) + compact_length(len(offered)) + entries + bytes(5)
