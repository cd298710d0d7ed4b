"""The requests of a login: they are read, passed to :class:`~headrace.security.login.Login`, and
answered. Nothing else of a client is read before it is logged in.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from headrace import handlers
from headrace.errors import ErrorCode
from headrace.handlers import APIS
from headrace.handlers.context import RequestContext
from headrace.protocol.file_range import Piece
from headrace.protocol.frames import SIZE, BadFrame, RequestHeader, request_header
from headrace.protocol.messages import Codec, codec
from headrace.protocol.refusals import refuse_all
from headrace.protocol.versions import Adapted, adapt
from headrace.security.login import Answer, Login, State

from .broker import Broker

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

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @staticmethod
    def load() -> None:
        """Import the modules of logins now, so that the first login delays no other request."""
        for api_key in (HANDSHAKE, API_VERSIONS, AUTHENTICATE):
            api = APIS[api_key]
            handlers.handler(api_key)
            for version in range(api.lowest, api.highest + 1):
                codec(api_key, version)

    def serve(
        self, login: Login, frame: memoryview, context_of: Callable[[RequestHeader], RequestContext]
    ) -> LoginAnswer:
        """Serve a request that belongs to a login.

        :param context_of: returns the context of a request
        :raises BadFrame: when it is no request that may come now, and has no response
        """
        clock = self._broker.clock
        if login.takes_tokens:
            answer = login.authenticate(bytes(frame), clock.wall_ms(), clock.now_ms())
            if answer.code:
                return LoginAnswer((), answer.message)  # such a client knows no errors
            return LoginAnswer((SIZE.pack(len(answer.token)) + answer.token,))
        header = request_header(frame)
        api = APIS.get(header.api_key)
        if api is None:
            raise BadFrame(f"api key {header.api_key} during a login")
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
        if not api.lowest <= header.api_version <= api.highest:
            return self._unsupported(header)
        wire, adapted = self._read(frame, header)
        if header.api_key == API_VERSIONS:
            context = context_of(header)
            return self._serve_versions(login, header, wire, adapted, context)
        if header.api_key == HANDSHAKE:
            return self._serve_handshake(login, header, wire, adapted)
        return self._serve_authenticate(login, header, wire, adapted)

    def _read(self, frame: memoryview, header: RequestHeader) -> tuple[Codec, Adapted]:
        wire = codec(header.api_key, header.api_version)
        request = wire.read_request(frame, header.body_offset)
        return wire, adapt(request, wire, APIS[header.api_key].highest, self._broker.catalog)

    def _unsupported(self, header: RequestHeader) -> LoginAnswer:
        if header.api_key != API_VERSIONS:
            raise BadFrame(f"version {header.api_version} of {APIS[header.api_key].name}")
        from headrace.handlers.api_18_api_versions import supported

        response = supported(ErrorCode.UNSUPPORTED_VERSION, self._broker)
        return LoginAnswer(codec(API_VERSIONS, 0).write_response(header.correlation_id, response))

    def _serve_versions(
        self,
        login: Login,
        header: RequestHeader,
        wire: Codec,
        adapted: Adapted,
        context: RequestContext,
    ) -> LoginAnswer:
        if login.state is not State.BEGIN:
            raise BadFrame("ApiVersions comes twice before the login")
        from headrace.handlers.api_18_api_versions import list_apis

        response = list_apis(self._broker, adapted.request, context)
        if not response.error_code:
            login.versions_answered()
        return LoginAnswer(
            wire.write_response(header.correlation_id, adapted.to_response(response))
        )

    def _serve_handshake(
        self, login: Login, header: RequestHeader, wire: Codec, adapted: Adapted
    ) -> LoginAnswer:
        now_ms = self._broker.clock.now_ms()
        answer = login.shake_hands(adapted.request.mechanism, header.api_version, now_ms)
        response = SaslHandshakeResponse(
            error_code=answer.code, mechanisms=tuple(login.mechanism_names)
        )
        return LoginAnswer(
            wire.write_response(header.correlation_id, adapted.to_response(response)),
            answer.message,
        )

    def _serve_authenticate(
        self, login: Login, header: RequestHeader, wire: Codec, adapted: Adapted
    ) -> LoginAnswer:
        clock = self._broker.clock
        answer = login.authenticate(
            bytes(adapted.request.auth_bytes),
            clock.wall_ms(),
            clock.now_ms(),
            can_reauthenticate=header.api_version > 0,
        )
        response = adapted.to_response(_authenticate_response(answer))
        return LoginAnswer(wire.write_response(header.correlation_id, response), answer.message)

    def _refuse_request(
        self, login: Login, frame: memoryview, header: RequestHeader
    ) -> LoginAnswer:
        """Refuse a request other than SaslAuthenticate, in the form of its own response."""
        api = APIS[header.api_key]
        answer = login.refuse(api.name)
        if not api.lowest <= header.api_version <= api.highest:
            raise BadFrame(answer.message or "")
        wire, adapted = self._read(frame, header)
        refusal = refuse_all(adapted.request, codec(api.key, api.highest).refusal_type, answer.code)
        response = adapted.to_response(refusal)
        return LoginAnswer(wire.write_response(header.correlation_id, response), answer.message)


def _authenticate_response(answer: Answer) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=answer.code,
        error_message=answer.message or "",
        auth_bytes=answer.token,
        session_lifetime=datetime.timedelta(milliseconds=answer.session_lifetime_ms),
    )
