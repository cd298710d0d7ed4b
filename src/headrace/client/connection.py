"""One connection to one broker: frames, correlation ids, version negotiation, TLS and SASL."""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import struct
from importlib import import_module
from types import ModuleType
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from .errors import ApiMissing, AuthenticationFailed, ConnectionFailed, RequestRefused, error_name
from .frames import Frames
from .security import PLAINTEXT, Sasl, Security, conversation

_INT = struct.Struct(">i")

_CERTIFICATE_SETTINGS = "ssl.certificate.location and ssl.key.location"

# api name -> (key, lowest, highest version that this client speaks)
_SPOKEN = {
    "fetch": (1, 12, 12),
    "list_offsets": (2, 7, 11),
    "metadata": (3, 10, 13),
    "offset_commit": (8, 8, 9),
    "offset_fetch": (9, 8, 9),
    "find_coordinator": (10, 4, 6),
    "describe_groups": (15, 5, 6),
    "list_groups": (16, 5, 5),
    "sasl_handshake": (17, 1, 1),
    "describe_configs": (32, 4, 4),
    "sasl_authenticate": (36, 2, 2),
    "delete_groups": (42, 2, 2),
    "incremental_alter_configs": (44, 1, 1),
    "offset_delete": (47, 0, 0),
    "consumer_group_describe": (69, 0, 1),
    "share_group_heartbeat": (76, 1, 1),
    "share_group_describe": (77, 1, 1),
    "share_fetch": (78, 1, 2),
    "share_acknowledge": (79, 1, 2),
    "streams_group_describe": (89, 0, 0),
    "describe_share_group_offsets": (90, 0, 1),
    "alter_share_group_offsets": (91, 0, 0),
    "delete_share_group_offsets": (92, 0, 0),
}


class Connection:
    """An open connection with negotiated versions. Requests may overlap; a broker answers them in
    order.

    Make one with :meth:`open`. Every method raises :class:`ConnectionFailed` once the connection is
    gone; it does not come back, open another.
    """

    def __init__(self, frames: Frames, address: str, client_id: str) -> None:
        self._frames = frames
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: ConnectionFailed | None = None
        self.address = address
        frames.begin(self._answered, self._hung_up)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "headrace",
        timeout_ms: int = 10_000,
        security: Security = PLAINTEXT,
    ) -> Connection:
        """Connect, ask for the API versions, and log in where ``security`` says so.

        :raises ConnectionFailed: nobody listens there, or it is not a Kafka broker
        :raises AuthenticationFailed: its certificate does not hold, or it does not let us in
        """
        address = f"{host}:{port}"
        tls = security.tls
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, frames = await asyncio.get_running_loop().create_connection(
                    Frames, host, port, ssl=tls, server_hostname=host if tls else None
                )
        except TimeoutError:
            raise ConnectionFailed(
                f"no broker answers at {address}: timed out after {timeout_ms} ms"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(
                f"the certificate of {address} does not hold: {error.verify_message}"
            ) from None
        except ssl.SSLError as error:
            if _is_about_our_certificate(error):
                raise _not_let_in(address, error) from None
            raise ConnectionFailed(f"no TLS with {address}: {error.reason or error}") from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConnectionFailed(
                f"no broker answers at {address}: {reason or 'it hung up when TLS began'}"
            ) from None
        connection = cls(frames, address, client_id)
        try:
            await connection._negotiate(timeout_ms, over_tls=tls is not None)
            if security.sasl is not None:
                await connection._log_in(security.sasl, timeout_ms)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """False from the moment that either side has hung up."""
        return self._failure is None

    def version(self, api: str) -> int:
        """The version that both sides speak of ``api``, as in ``"share_fetch"``.

        :raises ApiMissing: the broker does not offer the API, or only in other versions
        """
        key, lowest, highest = _SPOKEN[api]
        offered = self._versions.get(key)
        if offered is None:
            raise ApiMissing(
                f"the broker at {self.address} does not offer the API {api} that this needs"
            )
        version = min(highest, offered[1])
        if version < max(lowest, offered[0]):
            raise ApiMissing(
                f"the broker at {self.address} offers {api} in versions {offered[0]}-{offered[1]}, "
                f"but versions {lowest}-{highest} are needed"
            )
        return version

    def messages(self, api: str) -> ModuleType:
        """kio's request classes of ``api`` in the negotiated version."""
        return import_module(f"kio.schema.{api}.v{self.version(api)}.request")

    async def request(self, payload: Any, *, timeout_ms: int = 30_000) -> Any:
        """Send one of kio's requests and wait for its response.

        :raises ConnectionFailed: no answer within ``timeout_ms`` (the connection is then closed:
            what the broker has done is unknown), or the connection broke
        """
        if self._failure is not None:
            raise self._failure
        self._correlation_id += 1
        correlation_id = self._correlation_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (payload, answer)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._frames.send(_encode(payload, correlation_id, self._client_id))
                return await answer
        except TimeoutError:
            self._fail(
                f"the broker at {self.address} did not answer {_name(payload)} within "
                f"{timeout_ms} ms"
            )
            assert self._failure is not None
            raise self._failure from None
        except OSError as error:
            self._fail(f"the connection to {self.address} broke: {error.strerror or error}")
            assert self._failure is not None
            raise self._failure from None
        finally:
            answer.cancel()

    async def close(self) -> None:
        """Hang up. Requests still waiting fail."""
        self._fail(f"the connection to {self.address} was closed")
        await self._frames.wait_closed()

    async def _negotiate(self, timeout_ms: int, *, over_tls: bool) -> None:
        module = import_module("kio.schema.api_versions.v3.request")
        request = module.ApiVersionsRequest(
            client_software_name="headrace", client_software_version="0"
        )
        try:
            response = await self.request(request, timeout_ms=timeout_ms)
        except ConnectionFailed as error:
            lost = (
                self._frames.lost
            )  # with TLS 1.3 the broker looks at certificates after the handshake
            if isinstance(lost, ssl.SSLError) and _is_about_our_certificate(lost):
                raise _not_let_in(self.address, lost) from None
            wanting = (
                f", or wants a client certificate ({_CERTIFICATE_SETTINGS})" if over_tls else ""
            )
            raise ConnectionFailed(
                f"{self.address} does not speak the Kafka protocol{wanting}: {error}"
            ) from None
        if response.error_code != 0:
            raise RequestRefused(
                f"asking {self.address} for its API versions", int(response.error_code)
            )
        self._versions = {
            int(key.api_key): (int(key.min_version), int(key.max_version))
            for key in response.api_keys
        }

    async def _log_in(self, sasl: Sasl, timeout_ms: int) -> None:
        handshake = self.messages("sasl_handshake").SaslHandshakeRequest(mechanism=sasl.mechanism)
        answer = await self.request(handshake, timeout_ms=timeout_ms)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise AuthenticationFailed(
                f"{self.address} does not let clients log in with {sasl.mechanism}: it "
                f"offers {offered}"
            )
        messages = self.messages("sasl_authenticate")
        dialogue = conversation(sasl)
        said = next(dialogue)
        while True:
            request = messages.SaslAuthenticateRequest(auth_bytes=said)
            answer = await self.request(request, timeout_ms=timeout_ms)
            if answer.error_code:
                reason = answer.error_message or error_name(int(answer.error_code))
                raise AuthenticationFailed(
                    f"{self.address} does not let '{sasl.username}' in: {reason}"
                )
            try:
                said = dialogue.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _answered(self, frame: memoryview) -> None:
        try:
            payload, answer = self._waiting.pop(_INT.unpack_from(frame)[0])
            if not answer.done():
                answer.set_result(_decode(payload, frame))
        except Exception as error:
            self._fail(f"{self.address} sent an answer that cannot be read: {error!r}")

    def _hung_up(self, reason: str | None) -> None:
        self._fail(
            f"{self.address} {reason}"
            if reason
            else f"the broker at {self.address} closed the connection"
        )

    def _fail(self, reason: str) -> None:
        if self._failure is not None:
            return
        self._failure = ConnectionFailed(reason)
        self._frames.hang_up()
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._failure)
        self._waiting.clear()


def _is_about_our_certificate(error: ssl.SSLError) -> bool:
    """Whether the broker has ended TLS because of the certificate that it got, or because it got
    none.
    """
    reason = str(getattr(error, "reason", ""))
    return "_ALERT_" in reason and (
        "CERTIFICATE" in reason or reason.endswith(("UNKNOWN_CA", "ACCESS_DENIED"))
    )


def _not_let_in(address: str, error: ssl.SSLError) -> AuthenticationFailed:
    alert = error.reason.partition("_ALERT_")[2].replace("_", " ").lower()
    return AuthenticationFailed(
        f"{address} wants a client certificate that it trusts, and says '{alert}': see to "
        f"{_CERTIFICATE_SETTINGS}"
    )


def _encode(payload: Any, correlation_id: int, client_id: str) -> bytes:
    header_type = payload.__header_schema__
    header = header_type(
        request_api_key=payload.__api_key__,
        request_api_version=payload.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    sink = io.BytesIO(b"\0\0\0\0")
    sink.seek(_INT.size)
    entity_writer(header_type)(sink, header)
    entity_writer(type(payload))(sink, payload)
    frame = sink.getbuffer()
    _INT.pack_into(frame, 0, len(frame) - _INT.size)
    return bytes(frame)


def _decode(payload: Any, frame: memoryview) -> Any:
    response_type = load_response_schema(payload.__api_key__, payload.__version__)
    _, header_size = entity_reader(response_type.__header_schema__)(frame, 0)
    response, _ = entity_reader(response_type)(frame, header_size)
    return response


def _name(payload: Any) -> str:
    return type(payload).__name__.removesuffix("Request")
