"""A connection to a broker: correlation ids, version negotiation, TLS and SASL."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

from headrace.log_lines import shown
from headrace.protocol.api import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

from .diagnosis import (
    CERTIFICATE_SETTINGS,
    failed_opening,
    mismatch,
    refused_certificate,
    refused_login,
)
from .errors import (
    ApiMissing,
    AuthenticationFailed,
    ConnectionFailed,
    check_answer,
    error_name,
)
from .frames import (
    API_VERSIONS,
    Frames,
    IllegalTopicName,
    check_topic_names,
    decode_response,
    encode_request,
)
from .sasl import PLAINTEXT, Sasl, Security, bearer, conversation, next_message

_CORRELATION_ID = struct.Struct(">i")
_BEFORE_LOGIN = frozenset({17, API_VERSIONS, 36})
"""API keys of the requests that a broker serves before the login."""
_RENEWAL = (0.85, 0.95)
"""The range of the part of a session after which the client logs in again (KIP-368). It is chosen
at random, as in Kafka's Java clients, so that not all connections log in at once.
"""

_API_VERSIONS_VERSION = 3
"""The version of the request for the versions of all others."""

_APIS = """\
    Fetch                        12  18
    ListOffsets                  10  11
    Metadata                     12  13
    OffsetCommit                  8   9
    OffsetFetch                   8   9
    FindCoordinator               4   6
    DescribeGroups                5   6
    ListGroups                    5   5
    SaslHandshake                 1   1
    CreateTopics                  7   7
    DeleteTopics                  6   6
    DeleteRecords                 2   2
    InitProducerId                4   5
    EndTxn                        3   4
    DescribeAcls                  2   3
    CreateAcls                    2   3
    DeleteAcls                    2   3
    DescribeConfigs               4   4
    DescribeLogDirs               3   5
    SaslAuthenticate              2   2
    CreatePartitions              3   3
    DeleteGroups                  2   3
    IncrementalAlterConfigs       1   1
    OffsetDelete                  0   0
    DescribeClientQuotas          1   1
    AlterClientQuotas             1   1
    DescribeUserScramCredentials  0   0
    AlterUserScramCredentials     0   0
    DescribeCluster               0   1
    DescribeTransactions          0   0
    ListTransactions              0   1
    ConsumerGroupDescribe         0   1
    ListConfigResources           1   1
    DescribeTopicPartitions       0   0
    ShareGroupHeartbeat           1   1
    ShareGroupDescribe            1   1
    ShareFetch                    1   2
    ShareAcknowledge              1   2
    StreamsGroupDescribe          0   0
    DescribeShareGroupOffsets     0   1
    AlterShareGroupOffsets        0   0
    DeleteShareGroupOffsets       0   0
"""
"""Each API with the lowest and the highest version that this client supports.

OffsetCommit and OffsetFetch stop before version 10, which has topic ids: offsets of topics that no
longer exist have a name. EndTxn stops before version 5, which changes the epoch: a repeated request
has the same answer.
"""
_SUPPORTED = {
    f"{api}Request": (int(lowest), int(highest))
    for api, lowest, highest in map(str.split, _APIS.splitlines())
}


class Connection:
    """An open connection with negotiated versions. Requests may overlap; the broker answers them in
    order.

    Create one with :meth:`open`. After it breaks, every request raises :class:`ConnectionFailed`;
    open another.

    :ivar address: ``host:port`` of the broker
    """

    def __init__(self, address: str, client_id: str, security: Security) -> None:
        self._frames = Frames(self._receive, self._closed_by_broker)
        self._client_id = client_id
        self._security = security
        self._is_accepted = False
        """True once the broker has answered a request that needs a login where one is required."""
        self._correlation_id = 0
        self._waiting: dict[int, tuple[Message, int, asyncio.Future[Any]]] = {}
        """Correlation id → request, its version, its response."""
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: ConnectionFailed | None = None
        self._is_ended_by_broker = False
        self._login_lock = asyncio.Lock()
        self._log_in_at_s: float | None = None
        """Time of the event loop at which the session is to be renewed; None if it does not end."""
        self.address = address

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
        """Connect, negotiate API versions, and log in if ``security`` has a login.

        :param timeout_ms: timeout of connecting, and of each request
        :raises ConnectionFailed: no Kafka broker answers at the address
        :raises AuthenticationFailed: its certificate is invalid, or it refuses the login
        """
        address = f"{host}:{port}"
        tls = security.tls
        connection = cls(address, client_id, security)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection._frames,
                    host,
                    port,
                    ssl=tls,
                    server_hostname=host if tls else None,
                )
        except TimeoutError:
            raise ConnectionFailed(
                f"no broker answers at {address}: timed out after {timeout_ms} ms"
            ) from None
        except (OSError, OverflowError, ValueError) as error:
            raise await failed_opening(address, security, error) from None
        try:
            await connection._negotiate(timeout_ms)
            if security.sasl is not None:
                await connection._log_in(security.sasl, timeout_ms)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """True until either side closes the connection."""
        return self._failure is None

    def version(self, request_type: type[Message]) -> int:
        """Return the highest version of an API that both sides support.

        :param request_type: its request
        :raises ApiMissing: the broker does not offer the API, or only in other versions
        """
        api = request_type.__name__.removesuffix("Request")
        lowest, highest = _SUPPORTED[request_type.__name__]
        offered = self._versions.get(request_type.SCHEMA.key)
        if offered is None:
            raise ApiMissing(
                f"the broker at {self.address} does not offer the API {api}, which is needed"
            )
        version = min(highest, offered[1])
        if version < max(lowest, offered[0]):
            raise ApiMissing(
                f"the broker at {self.address} offers {api} in versions {offered[0]}-{offered[1]}, "
                f"but versions {lowest}-{highest} are needed"
            )
        return version

    async def ask(
        self, request: Message, *, timeout_ms: int = 30_000, version: int | None = None
    ) -> Any:
        """Send a request of :mod:`headrace.protocol.api`, and return its response. The fields that
        a version lacks are left out of the request, and have their defaults in the response.

        :param version: None for the negotiated version
        :raises ApiMissing: see :meth:`version`
        :raises ConnectionFailed: the connection broke, or no response came within ``timeout_ms``;
            then the connection is closed, and the request may have been executed
        :raises AuthenticationFailed: the broker requires a login, and the settings have none; or it
            refuses to renew the session
        :raises StringTooLong: a name or value does not fit into a request; nothing was sent
        """
        version = self.version(type(request)) if version is None else version
        if self._log_in_at_s is not None:
            await self._renew_session(timeout_ms)
        if self._failure is not None:
            raise self._failure
        try:
            answer = await self._exchange(request, version, timeout_ms)
        except ConnectionFailed:
            if self._is_accepted or not self._is_ended_by_broker:
                raise
            # With TLS 1.3 the broker checks certificates after the handshake.
            mistake = refused_certificate(self.address, self._frames.lost) or await mismatch(
                self.address, self._security
            )
            if mistake is None:
                raise
            raise mistake from None
        self._is_accepted = self._is_accepted or request.SCHEMA.key not in _BEFORE_LOGIN
        return answer

    async def _exchange(self, request: Message, version: int, timeout_ms: int) -> Any:
        self._correlation_id += 1
        correlation_id = self._correlation_id
        frame = encode_request(request, version, correlation_id, self._client_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (request, version, answer)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._frames.send(frame)
                return await answer
        except TimeoutError:
            name = type(request).__name__.removesuffix("Request")
            reason = f"the broker at {self.address} did not answer {name} within {timeout_ms} ms"
            raise self._fail(reason) from None
        except OSError as error:
            reason = f"the connection to {self.address} broke: {error.strerror or error}"
            raise self._fail(reason) from None
        finally:
            answer.cancel()

    def disconnect(self) -> None:
        """Close the connection without waiting for the broker. Pending requests fail."""
        self._fail(f"the connection to {self.address} was closed")

    async def close(self) -> None:
        """Close the connection. Pending requests fail."""
        self.disconnect()
        await self._frames.closed.wait()

    async def _negotiate(self, timeout_ms: int) -> None:
        request = ApiVersionsRequest("headrace", "0")
        try:
            response = await self.ask(request, timeout_ms=timeout_ms, version=_API_VERSIONS_VERSION)
        except ConnectionFailed as error:
            hint = ""
            if self._security.tls is not None:
                hint = f", or requires a client certificate ({CERTIFICATE_SETTINGS})"
            raise ConnectionFailed(
                f"{self.address} does not speak the Kafka protocol{hint}: {error}"
            ) from None
        check_answer(f"asking {self.address} for its API versions", response)
        self._versions = {
            key.api_key: (key.min_version, key.max_version) for key in response.api_keys
        }

    async def _renew_session(self, timeout_ms: int) -> None:
        """Log in again if most of the session has passed (KIP-368). Other requests wait meanwhile.

        :raises AuthenticationFailed: the broker refuses the login; then the connection is closed
        """
        async with self._login_lock:
            now_s = asyncio.get_running_loop().time()
            if self._log_in_at_s is None or now_s < self._log_in_at_s or not self.is_open:
                return
            assert self._security.sasl is not None
            try:
                await self._log_in(self._security.sasl, timeout_ms)
            except BaseException as error:
                self._fail(f"the session at {self.address} was not renewed: {shown(error)}")
                raise

    async def _log_in(self, sasl: Sasl, timeout_ms: int) -> None:
        if sasl.tokens is None:
            name, dialogue = sasl.username, conversation(sasl)
        else:
            token = await sasl.tokens.current()
            name, dialogue = token.name, bearer(token)
        handshake = SaslHandshakeRequest(sasl.mechanism)
        version = self.version(SaslHandshakeRequest)
        answer = await self._exchange(handshake, version, timeout_ms)
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            right = "PLAINTEXT" if self._security.tls is None else "SSL"
            raise AuthenticationFailed(
                f"{self.address} takes no logins: set security.protocol to {right}"
            )
        if answer.error_code:
            offered = " or ".join(answer.mechanisms) or "nothing that it offers"
            raise AuthenticationFailed(
                f"{self.address} does not accept logins with {sasl.mechanism}: set sasl.mechanism "
                f"to {offered}"
            )
        auth_bytes: bytes | None = next(dialogue)
        version = self.version(SaslAuthenticateRequest)
        while auth_bytes is not None:
            answer = await self._exchange(SaslAuthenticateRequest(auth_bytes), version, timeout_ms)
            if answer.error_code:
                reason = answer.error_message or error_name(answer.error_code)
                raise refused_login(self.address, sasl.mechanism, name, reason)
            auth_bytes = await asyncio.to_thread(next_message, dialogue, answer.auth_bytes)
        lifetime_s = answer.session_lifetime_ms / 1000
        self._log_in_at_s = None
        if lifetime_s > 0:
            now_s = asyncio.get_running_loop().time()
            self._log_in_at_s = now_s + lifetime_s * random.uniform(*_RENEWAL)

    def _receive(self, frame: memoryview) -> None:
        try:
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
            request, version, answer = self._waiting[correlation_id]
            if not answer.done():
                response = decode_response(request, version, frame)
                check_topic_names(request, version, response)
                answer.set_result(response)
            del self._waiting[correlation_id]
        except IllegalTopicName as error:
            self._fail(f"{self.address} sent a response that cannot be used: {error}")
        except Exception as error:
            reason = f"{self.address} sent a response that cannot be parsed: {shown(error)}"
            self._fail(reason, error)

    def _closed_by_broker(self, reason: str | None) -> None:
        self._is_ended_by_broker = self._failure is None
        if reason:
            self._fail(f"{self.address} {reason}")
        else:
            self._fail(f"the broker at {self.address} closed the connection", self._frames.lost)

    def _fail(self, reason: str, cause: Exception | None = None) -> ConnectionFailed:
        """Close the connection, unless it is closed, and return why it is."""
        if self._failure is None:
            self._failure = ConnectionFailed(reason)
            if cause is not None:  # without the frames, which hold what was received
                self._failure.__cause__ = cause.with_traceback(None)
            self._frames.hang_up()
            for *_, answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._failure)
            self._waiting.clear()
        return self._failure
