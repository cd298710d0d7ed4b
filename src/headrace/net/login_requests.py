"""The requests of a login: they are read, passed to :class:`~headrace.security.login.Login`, and
answered. Nothing else of a client is read before it is logged in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.net import wire
from headrace.net.api import Api, Apis
from headrace.net.call import Call, Client
from headrace.net.services import Services
from headrace.protocol.api import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headrace.protocol.file_range import Piece
from headrace.protocol.frames import SIZE, BadFrame, RequestHeader, request_header
from headrace.protocol.primitives import NullArray
from headrace.security.login import Login, State

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18


class LoginAnswer(NamedTuple):
    """The result of a request.

    :ivar pieces: the response
    :ivar failure: the reason why the login has failed; None if it has not
    """

    pieces: Sequence[Piece]
    failure: str | None = None


class LoginRequests:
    """The service of the requests of logins."""

    def __init__(self, services: Services, apis: Apis) -> None:
        self._services = services
        self._apis = apis

    def load(self) -> None:
        """Import the modules of logins now, so that the first login delays no other request."""
        for api_key in (HANDSHAKE, API_VERSIONS, AUTHENTICATE):
            api = self._apis[api_key]
            for version in range(api.lowest, api.highest + 1):
                api.request.reader(version)
                api.response.writer(version)

    def serve(self, login: Login, frame: memoryview, client: Client) -> LoginAnswer:
        """Serve a request that belongs to a login.

        :raises BadFrame: when it is no request that may come now, and has no response
        """
        clock = self._services.clock
        if login.takes_tokens:
            answer = login.authenticate(bytes(frame), clock.wall_ms(), clock.now_ms())
            if answer.code:
                return LoginAnswer((), answer.message)  # such a client knows no errors
            return LoginAnswer((SIZE.pack(len(answer.token)) + answer.token,))
        header = request_header(frame)
        if header.api_key not in self._apis:
            raise BadFrame(f"api key {header.api_key} during a login")
        api = self._apis[header.api_key]
        if login.state is State.COMPLETE:
            if header.api_key != HANDSHAKE or not login.may_begin_again(clock.now_ms()):
                raise BadFrame("its session has ended, and it has not authenticated again")
        elif login.state is State.AUTHENTICATE and header.api_key != AUTHENTICATE:
            return self._refuse_request(login, frame, header)
        elif login.state is not State.AUTHENTICATE and header.api_key not in (
            HANDSHAKE,
            API_VERSIONS,
        ):
            raise BadFrame(login.refuse(api.name).message or "")
        call = Call(self._services, api, client, header.api_version, header.client_id)
        if not api.lowest <= header.api_version <= api.highest:
            if api.unserved is None:
                raise BadFrame(f"version {header.api_version} of {api.name}")
            response = api.unserved(call)
            return LoginAnswer(wire.write_response(api, header._replace(api_version=0), response))
        request = _read(api, frame, header)
        if header.api_key == API_VERSIONS:
            return self._serve_versions(login, header, call, request)
        if header.api_key == HANDSHAKE:
            return self._serve_handshake(login, header, request)
        return self._serve_authenticate(login, header, request)

    def _serve_versions(
        self, login: Login, header: RequestHeader, call: Call, request: ApiVersionsRequest
    ) -> LoginAnswer:
        if login.state is not State.BEGIN:
            raise BadFrame("ApiVersions comes twice before the login")
        response = _answer(call.api.handle(call, request))
        if not response.error_code:
            login.versions_answered()
        return LoginAnswer(wire.write_response(call.api, header, response))

    def _serve_handshake(
        self, login: Login, header: RequestHeader, request: SaslHandshakeRequest
    ) -> LoginAnswer:
        now_ms = self._services.clock.now_ms()
        answer = login.shake_hands(request.mechanism, header.api_version, now_ms)
        response = SaslHandshakeResponse(answer.code, login.mechanism_names)
        pieces = wire.write_response(self._apis[HANDSHAKE], header, response)
        return LoginAnswer(pieces, answer.message)

    def _serve_authenticate(
        self, login: Login, header: RequestHeader, request: SaslAuthenticateRequest
    ) -> LoginAnswer:
        clock = self._services.clock
        answer = login.authenticate(
            bytes(request.auth_bytes),
            clock.wall_ms(),
            clock.now_ms(),
            can_reauthenticate=header.api_version > 0,
        )
        response = SaslAuthenticateResponse(
            error_code=answer.code,
            error_message=answer.message or "",
            auth_bytes=answer.token,
            session_lifetime_ms=answer.session_lifetime_ms,
        )
        pieces = wire.write_response(self._apis[AUTHENTICATE], header, response)
        return LoginAnswer(pieces, answer.message)

    def _refuse_request(
        self, login: Login, frame: memoryview, header: RequestHeader
    ) -> LoginAnswer:
        """Refuse a request other than SaslAuthenticate, in the form of its own response."""
        api = self._apis[header.api_key]
        answer = login.refuse(api.name)
        if not api.lowest <= header.api_version <= api.highest:
            raise BadFrame(answer.message or "")
        response = api.refused(_read(api, frame, header), answer.code)
        return LoginAnswer(wire.write_response(api, header, response), answer.message)


def _read(api: Api, frame: memoryview, header: RequestHeader) -> Any:
    try:
        return wire.read_request(api, frame, header)
    except NullArray as error:
        raise BadFrame(f"{api.request.name} v{header.api_version}: {error}") from error


def _answer(steps: Any) -> Any:
    """Return the response of a handler that awaits nothing."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a login waits for nothing else")
