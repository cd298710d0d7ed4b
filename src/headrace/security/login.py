"""The login of one connection: which requests are allowed when (KIP-43, KIP-152, KIP-368).

====================== =============================================================================
state                  allowed
====================== =============================================================================
``BEGIN``              ApiVersions, SaslHandshake
``HANDSHAKE``          SaslHandshake: ApiVersions was answered
``AUTHENTICATE``       messages of the mechanism: in SaslAuthenticate after SaslHandshake version 1,
                       as frames of their own after version 0
``COMPLETE``           every request. SaslHandshake begins a re-authentication
``FAILED``             nothing: the connection is about to be closed
====================== =============================================================================

During a re-authentication the connection is in ``AUTHENTICATE`` again and has its principal still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.protocol.errors import ErrorCode

from .conversation import Challenge, Conversation, Failure, Success
from .principal import Principal

SASL_HANDSHAKE = 17

MIN_REAUTHENTICATION_INTERVAL_MS = 1000
"""Kafka's own: the least time between two logins on a connection."""


class State(Enum):
    """The state of a login, see the module."""

    BEGIN = 1
    HANDSHAKE = 2
    AUTHENTICATE = 3
    COMPLETE = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class EnabledMechanism:
    """A mechanism of a listener.

    :ivar begin: returns the conversation of a new login
    :ivar max_reauth_ms: the longest session, 0 for no limit
    """

    begin: Callable[[], Conversation]
    max_reauth_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a message of a client.

    :ivar code: NONE, ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM or SASL_AUTHENTICATION_FAILED
    :ivar message: for the client, None without an error
    :ivar token: the server's message
    :ivar session_lifetime_ms: 0 for no limit
    """

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0


@dataclass(slots=True, repr=False)
class Login:
    """The login of one connection.

    :param mechanisms: the enabled mechanisms by name, in the order of the configuration
    :ivar principal: None before the first login has succeeded
    :ivar takes_tokens: True if the client sends messages of the mechanism as frames of their own
    :ivar mechanism: the mechanism of the client, None before its handshake
    :ivar expires_ms: the steady time at which the session ends, None for never
    """

    mechanisms: Mapping[str, EnabledMechanism]
    state: State = State.BEGIN
    principal: Principal | None = None
    takes_tokens: bool = False
    mechanism: str | None = None
    expires_ms: int | None = None
    _conversation: Conversation | None = None
    _can_reauthenticate: bool = False
    _began_again_ms: int = -MIN_REAUTHENTICATION_INTERVAL_MS
    _refused_mechanism: str | None = None

    @property
    def is_complete(self) -> bool:
        """True while the client is logged in."""
        return self.state is State.COMPLETE

    def intercepts(self, api_key: int, now_ms: int) -> bool:
        """Return whether a request belongs to a login, or comes after the end of a session.

        :param now_ms: the steady time
        """
        return (
            self.state is not State.COMPLETE
            or (self.expires_ms is not None and now_ms >= self.expires_ms)
            or (api_key == SASL_HANDSHAKE and self.may_begin_again(now_ms))
        )

    def versions_answered(self) -> None:
        """Note that ApiVersions was answered with success."""
        self.state = State.HANDSHAKE

    def may_begin_again(self, now_ms: int) -> bool:
        """Return whether a client that is logged in may log in again now. It may in a session with
        an end: the first time at once, then at most once a second.

        :param now_ms: the steady time
        """
        return (
            self._can_reauthenticate
            and self.expires_ms is not None
            and now_ms - self._began_again_ms >= MIN_REAUTHENTICATION_INTERVAL_MS
        )

    def shake_hands(self, mechanism: str, version: int, now_ms: int) -> Answer:
        """Begin a login with a mechanism.

        :param now_ms: the steady time
        """
        if self.principal is not None:
            self._began_again_ms = now_ms
        enabled = self.mechanisms.get(mechanism)
        if enabled is None:
            return self._fail(
                f"Unsupported SASL mechanism {mechanism}", ErrorCode.UNSUPPORTED_SASL_MECHANISM
            )
        if self.principal is not None and mechanism != self.mechanism:
            self._refused_mechanism = mechanism
        else:
            self.mechanism = mechanism
            self._conversation = enabled.begin()
        self.takes_tokens = version == 0
        self.state = State.AUTHENTICATE
        return Answer()

    def authenticate(
        self, token: bytes, wall_ms: int, now_ms: int, *, can_reauthenticate: bool = False
    ) -> Answer:
        """Continue a login with a message of the client.

        :param wall_ms: epoch milliseconds, for the expiry of credentials
        :param now_ms: the steady time, for the session
        :param can_reauthenticate: the client has shown that it knows sessions
        """
        self._can_reauthenticate |= can_reauthenticate
        if self._refused_mechanism is not None:
            return self._fail(
                f"SASL mechanism '{self._refused_mechanism}' requested by client is not supported "
                f"for re-authentication of mechanism '{self.mechanism}'"
            )
        assert self._conversation is not None
        step = self._conversation.respond(token, wall_ms)
        if isinstance(step, Challenge):
            return Answer(token=step.token)
        if isinstance(step, Failure):
            what = "authentication" if self.principal is None else "re-authentication"
            return self._fail(
                step.message
                or f"Authentication failed during {what} due to invalid credentials with SASL "
                f"mechanism {self.mechanism}"
            )
        principal = Principal(step.name)
        if self.principal is not None and principal != self.principal:
            return self._fail(
                "Cannot change principals during re-authentication from "
                f"User.{self.principal.name}: User.{principal.name}"
            )
        self.principal = principal
        return self._complete(step, wall_ms, now_ms)

    def refuse(self, api_name: str) -> Answer:
        """Refuse a request that is not allowed in this state."""
        step = "authentication" if self.state is State.AUTHENTICATE else "handshake"
        return self._fail(
            f"Unexpected Kafka request of type {api_name} during SASL {step}.",
            ErrorCode.ILLEGAL_SASL_STATE,
        )

    def _complete(self, success: Success, wall_ms: int, now_ms: int) -> Answer:
        """End a login: compute its session, the shorter one of what the configuration and the
        credential allow.
        """
        assert self.mechanism is not None
        limits = []
        configured = self.mechanisms[self.mechanism].max_reauth_ms
        if configured > 0:
            limits.append(configured)
        if success.expires_ms is not None:
            limits.append(max(success.expires_ms - wall_ms, 0))
        self._conversation = None
        self.expires_ms = now_ms + min(limits) if limits else None
        self.takes_tokens = False
        self.state = State.COMPLETE
        return Answer(token=success.token, session_lifetime_ms=min(limits, default=0))

    def _fail(self, message: str, code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED) -> Answer:
        self._conversation = None
        self.state = State.FAILED
        return Answer(code, message)
