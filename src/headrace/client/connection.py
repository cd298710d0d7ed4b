"""A connection to a broker: correlation ids, version negotiation, TLS and SASL."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Mapping
from typing import Any

from headrace.errors import ErrorCode
from headrace.log_lines import shown

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
from .frames import Frames
from .messages import (
    IllegalTopicName,
    check_topic_names,
    decode_response,
    encode_request,
    request_of,
)
from .sasl import PLAINTEXT, Sasl, Security, begin, next_message

_CORRELATION_ID = struct.Struct(">i")
_BEFORE_LOGIN = frozenset({17, 18, 36})
"""API keys of the requests that a broker serves before the login."""
_RENEWAL = (0.85, 0.95)
"""The range of the part of a session after which the client logs in again (KIP-368). It is chosen
at random, as in Kafka's Java clients, so that not all connections log in at once.
"""

_API_VERSIONS = 18, 3
"""The key and version of the request for the versions of all others."""
_NO_FIELDS: Mapping[str, Any] = {}

_APIS = """\
    fetch                             1  12  18
    list_offsets                      2  10  11
    metadata                          3  12  13
    offset_commit                     8   8   9
    offset_fetch                      9   8   9
    find_coordinator                 10   4   6
    describe_groups                  15   5   6
    list_groups                      16   5   5
    sasl_handshake                   17   1   1
    create_topics                    19   7   7
    delete_topics                    20   6   6
    delete_records                   21   2   2
    init_producer_id                 22   4   5
    end_txn                          26   3   4
    describe_acls                    29   2   3
    create_acls                      30   2   3
    delete_acls                      31   2   3
    describe_configs                 32   4   4
    describe_log_dirs                35   3   5
    sasl_authenticate                36   2   2
    create_partitions                37   3   3
    delete_groups                    42   2   3
    incremental_alter_configs        44   1   1
    offset_delete                    47   0   0
    describe_client_quotas           48   1   1
    alter_client_quotas              49   1   1
    describe_user_scram_credentials  50   0   0
    alter_user_scram_credentials     51   0   0
    describe_cluster                 60   0   1
    describe_transactions            65   0   0
    list_transactions                66   0   1
    consumer_group_describe          69   0   1
    list_config_resources            74   1   1
    describe_topic_partitions        75   0   0
    share_group_heartbeat            76   1   1
    share_group_describe             77   1   1
    share_fetch                      78   1   2
    share_acknowledge                79   1   2
    streams_group_describe           89   0   0
    describe_share_group_offsets     90   0   1
    alter_share_group_offsets        91   0   0
    delete_share_group_offsets       92   0   0
"""
"""Each API with its key, and the lowest and the highest version that this client supports.

OffsetCommit and OffsetFetch stop before version 10, which has topic ids: offsets of topics that no
longer exist have a name. EndTxn stops before version 5, which changes the epoch: a repeated request
has the same answer.
"""
_SUPPORTED = {
    api: (int(key), int(lowest), int(highest))
    for api, key, lowest, highest in map(str.split, _APIS.splitlines())
}


class Connection:
    """An open connection with negotiated versions. Requests may overlap; the broker answers them in
    order.

    Create one with :meth:`open`. After it breaks, every request raises :class:`ConnectionFailed`;
    open another.

    :ivar address: ``host:port`` of the broker
    """

    def __init__(
        self, frames: Frames, address: str, client_id: str, security: Security = PLAINTEXT
    ) -> None:
        self._frames = frames
        self._client_id = client_id
        self._security = security
        self._is_accepted = False
        """True once the broker has answered a request that needs a login where one is required."""
        self._correlation_id = 0
        self._waiting: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: ConnectionFailed | None = None
        self._is_ended_by_broker = False
        self._login_lock = asyncio.Lock()
        self._log_in_at_s: float | None = None
        """Time of the event loop at which the session is to be renewed; None if it does not end."""
        self.address = address
        frames.begin(self._receive, self._closed_by_broker)

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
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, frames = await asyncio.get_running_loop().create_connection(
                    Frames, host, port, ssl=tls, server_hostname=host if tls else None
                )
        except TimeoutError:
            raise ConnectionFailed(
                f"no broker answers at {address}: timed out after {timeout_ms} ms"
            ) from None
        except (OSError, OverflowError, ValueError) as error:
            raise await failed_opening(address, security, error) from None
        connection = cls(frames, address, client_id, security)
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

    def version(self, api: str) -> int:
        """Return the highest version of an API that both sides support.

        :param api: kio's name, such as ``"share_fetch"``
        :raises ApiMissing: the broker does not offer the API, or only in other versions
        """
        key, lowest, highest = _SUPPORTED[api]
        offered = self._versions.get(key)
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

    def build(self, api: str, fields: Mapping[str, Any], version: int | None = None) -> Any:
        """Return one of kio's requests.

        :param fields: kio's names of the fields → their values, mappings for nested messages
        :param version: None for the negotiated version
        :raises ApiMissing: see :meth:`version`
        :raises StringTooLong: a name or value does not fit into a request
        """
        version = self.version(api) if version is None else version
        return request_of(_SUPPORTED[api][0], version, fields)

    async def ask(
        self,
        api: str,
        fields: Mapping[str, Any] = _NO_FIELDS,
        *,
        timeout_ms: int = 30_000,
        version: int | None = None,
    ) -> Any:
        """Send a request, and return its response; the parameters are those of :meth:`build`.

        :raises ClientError: see :meth:`build` and :meth:`request`
        """
        request = self.build(api, fields, version)
        return await self.request(request, timeout_ms=timeout_ms)

    async def request(self, payload: Any, *, timeout_ms: int = 30_000) -> Any:
        """Send one of kio's requests, and return its response.

        :raises ConnectionFailed: the connection broke, or no response came within ``timeout_ms``;
            then the connection is closed, and the request may have been executed
        :raises AuthenticationFailed: the broker requires a login, and the settings have none; or it
            refuses to renew the session
        :raises StringTooLong: a name or value does not fit into a request; nothing was sent
        """
        if self._log_in_at_s is not None:
            await self._renew_session(timeout_ms)
        if self._failure is not None:
            raise self._failure
        try:
            answer = await self._exchange(payload, timeout_ms)
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
        self._is_accepted = self._is_accepted or payload.__api_key__ not in _BEFORE_LOGIN
        return answer

    async def _exchange(self, payload: Any, timeout_ms: int) -> Any:
        self._correlation_id += 1
        correlation_id = self._correlation_id
        frame = encode_request(payload, correlation_id, self._client_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (payload, answer)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._frames.send(frame)
                return await answer
        except TimeoutError:
            name = type(payload).__name__.removesuffix("Request")
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
        await self._frames.wait_closed()

    async def _negotiate(self, timeout_ms: int) -> None:
        fields = {"client_software_name": "headrace", "client_software_version": "0"}
        request = request_of(*_API_VERSIONS, fields)
        try:
            response = await self.request(request, timeout_ms=timeout_ms)
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
        name, dialogue = await begin(sasl)
        handshake = self.build("sasl_handshake", {"mechanism": sasl.mechanism})
        answer = await self._exchange(handshake, timeout_ms)
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
        while auth_bytes is not None:
            request = self.build("sasl_authenticate", {"auth_bytes": auth_bytes})
            answer = await self._exchange(request, timeout_ms)
            if answer.error_code:
                reason = answer.error_message or error_name(int(answer.error_code))
                raise refused_login(self.address, sasl.mechanism, name, reason)
            auth_bytes = await asyncio.to_thread(next_message, dialogue, bytes(answer.auth_bytes))
        lifetime_s = answer.session_lifetime.total_seconds()
        self._log_in_at_s = None
        if lifetime_s > 0:
            now_s = asyncio.get_running_loop().time()
            self._log_in_at_s = now_s + lifetime_s * random.uniform(*_RENEWAL)

    def _receive(self, frame: memoryview) -> None:
        try:
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
            payload, answer = self._waiting[correlation_id]
            if not answer.done():
                response = decode_response(payload, frame)
                check_topic_names(payload, response)
                answer.set_result(response)
            del self._waiting[correlation_id]
        except IllegalTopicName as error:
            self._fail(f"{self.address} sent a response that cannot be used: {error}")
        except Exception as error:
            self._fail(f"{self.address} sent a response that cannot be parsed: {shown(error)}")

    def _closed_by_broker(self, reason: str | None) -> None:
        self._is_ended_by_broker = self._failure is None
        if reason:
            self._fail(f"{self.address} {reason}")
        else:
            self._fail(f"the broker at {self.address} closed the connection")

    def _fail(self, reason: str) -> ConnectionFailed:
        """Close the connection, unless it is closed, and return why it is."""
        if self._failure is None:
            self._failure = ConnectionFailed(reason)
            self._frames.hang_up()
            for _, answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._failure)
            self._waiting.clear()
        return self._failure
