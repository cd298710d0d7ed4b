"""The requests of a login: they are read, passed to :class:`~headrace.security.login.Login`, and
answered. Nothing else of a client is read before it is logged in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.coordinators.waiting import run_to_end
from headrace.protocol.api import SaslAuthenticateResponse, SaslHandshakeResponse
from headrace.protocol.file_range import Piece
from headrace.protocol.frames import SIZE, BadFrame, RequestHeader, request_header
from headrace.protocol.primitives import NullArray
from headrace.security.login import Login, State

from . import wire
from .api import Api, Apis
from .call import Call, Client
from .services import Services

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18


def load_logins(apis: Apis) -> None:
    """Import the modules of logins now, so that the first login delays no other request."""
    for api_key in (HANDSHAKE, API_VERSIONS, AUTHENTICATE):
        api = apis[api_key]
        for version in range(api.lowest, api.highest + 1):
            api.request.reader(version)
            api.response.writer(version)


def serve_login(
    services: Services, apis: Apis, login: Login, frame: memoryview, client: Client
) -> tuple[Sequence[Piece], str | None]:
    """Serve a request that belongs to a login.

    :returns: the response, and the reason why the login has failed; None if it has not
    :raises BadFrame: when it is no request that may come now, and has no response
    """
    wall_ms, now_ms = services.clock.wall_ms(), services.clock.now_ms()
    if login.takes_tokens:
        answer = login.authenticate(bytes(frame), wall_ms, now_ms)
        if answer.code:
            return (), answer.message  # such a client knows no errors
        return (SIZE.pack(len(answer.token)) + answer.token,), None
    header = request_header(frame)
    api = apis.get(header.api_key)
    if api is None:
        raise BadFrame(f"api key {header.api_key} during a login")
    is_served = api.lowest <= header.api_version <= api.highest
    if login.state is State.COMPLETE:
        if header.api_key != HANDSHAKE or not login.may_begin_again(now_ms):
            raise BadFrame("its session has ended, and it has not authenticated again")
    elif login.state is State.AUTHENTICATE:
        if header.api_key != AUTHENTICATE:  # refused in the form of its own response
            answer = login.refuse(api.name)
            if not is_served:
                raise BadFrame(answer.message or "")
            response = api.refused(_read(api, frame, header), answer.code)
            return wire.write_response(api, header, response), answer.message
    elif header.api_key not in (HANDSHAKE, API_VERSIONS):
        raise BadFrame(login.refuse(api.name).message or "")
    call = Call(services, api, client, header.api_version, header.client_id)
    if not is_served:
        if api.unserved is None:
            raise BadFrame(f"version {header.api_version} of {api.name}")
        response = api.unserved(call)
        return wire.write_response(api, header._replace(api_version=0), response), None
    request = _read(api, frame, header)
    if header.api_key == API_VERSIONS:
        if login.state is not State.BEGIN:
            raise BadFrame("ApiVersions comes twice before the login")
        steps: Any = api.handle(call, request)
        response, message = run_to_end(steps).result(), None  # it waits for nothing
        if not response.error_code:
            login.versions_answered()
    elif header.api_key == HANDSHAKE:
        answer = login.shake_hands(request.mechanism, header.api_version, now_ms)
        message = answer.message
        response = SaslHandshakeResponse(answer.code, tuple(login.mechanisms))
    else:
        answer = login.authenticate(
            bytes(request.auth_bytes),
            wall_ms,
            now_ms,
            can_reauthenticate=header.api_version > 0,
        )
        message = answer.message
        response = SaslAuthenticateResponse(
            error_code=answer.code,
            error_message=message or "",
            auth_bytes=answer.token,
            session_lifetime_ms=answer.session_lifetime_ms,
        )
    return wire.write_response(api, header, response), message


def _read(api: Api, frame: memoryview, header: RequestHeader) -> Any:
    try:
        return wire.read_request(api, frame, header)
    except NullArray as error:
        raise BadFrame(f"{api.request.name} v{header.api_version}: {error}") from error
