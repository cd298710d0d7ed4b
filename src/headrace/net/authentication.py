"""The SASL mechanisms of one listener, from its configuration and the users in the catalog."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.imports import require
from headrace.log_lines import LimitedLog
from headrace.protocol.configuration import Value, entries
from headrace.protocol.errors import ConfigError
from headrace.security import jaas, plain, scram
from headrace.security.conversation import Conversation
from headrace.security.login import EnabledMechanism, Login
from headrace.topics.catalog import Catalog
from headrace.topics.settings import Settings

from .scram_users import find_credential, users_by_iterations

if TYPE_CHECKING:
    from headrace.security import oauthbearer

    from .jwks import KeySource

log = LimitedLog("headrace.sasl")

_NONCE_BYTES = 18

_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM_MODULE,
    "SCRAM-SHA-512": _SCRAM_MODULE,
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
"""The login modules of the mechanisms that are served."""
_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_SIGNED = frozenset(
    (
        f"{_OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    )
)
_UNSECURED = f"{_OAUTH_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATORS = frozenset(
    (f"{_OAUTH_PACKAGE}.DefaultJwtValidator", f"{_OAUTH_PACKAGE}.BrokerJwtValidator")
)


class _Unserved(ValueError):
    """Settings that cannot be served. The message lacks the name of the listener."""


class _Mechanism(NamedTuple):
    """The settings of one mechanism of a listener."""

    config: Settings
    listener: str
    name: str

    def value(self, setting: str) -> Value | None:
        return self.config.listener_value(self.listener, setting, self.name)

    def text(self, setting: str) -> str:
        return (self.config.listener_text(self.listener, setting, self.name) or "").strip()

    def integer(self, setting: str) -> int:
        value = self.value(setting)
        assert isinstance(value, int), setting
        return value

    def full_name(self, setting: str) -> str:
        """Return the name of a setting with the prefix of this mechanism."""
        return f"listener.name.{self.listener.lower()}.{self.name.lower()}.{setting}"

    def login_module(self) -> jaas.LoginModule | None:
        """Return the login module, None if none is configured."""
        text = self.value("sasl.jaas.config")
        if text is None:
            return None
        expected = _MODULES[self.name]
        try:
            module = jaas.parse(str(text))
            if module.name != expected:
                raise jaas.InvalidJaas(f"the login module of {self.name} is {expected}")
        except jaas.InvalidJaas as error:
            raise ConfigError(f"{self.full_name('sasl.jaas.config')}: {error}") from None
        return module


@dataclass(repr=False)
class SaslListener:
    """The logins of one listener, from :meth:`start` to :meth:`close`.

    :param _name: the listener's
    :raises ConfigError: when its settings cannot be used
    :ivar keys: the keys of tokens, None without tokens that have a signature
    :ivar max_receive_bytes: the largest request before the login
    :ivar failure_delay_ms: the time after which a failed login is answered
    """

    _name: str
    _config: Settings
    _catalog: Catalog
    keys: KeySource | None = None
    _unknown: dict[scram.Mechanism, tuple[int, scram.UnknownUsers]] = field(default_factory=dict)
    """With the versions of the catalog that they were made of."""

    def __post_init__(self) -> None:
        self._take(self._config)

    def start(self, before: KeySource | None = None) -> None:
        """Begin to read the keys of tokens.

        :param before: where they were read from until now
        """
        if self.keys is not None:
            self.keys.start(before)

    def new_login(self) -> Login:
        """Return the login of a new connection."""
        return Login(self._mechanisms)

    def check(self, config: Settings) -> None:
        """Check that the listener can take over a configuration.

        :raises ConfigError: when it cannot
        """
        SaslListener(self._name, config, self._catalog)

    def reload(self) -> None:
        """Use the present configuration for new connections. It was checked before."""
        before = self.keys
        self.close()
        self._take(self._config)
        self.start(before)

    def close(self) -> None:
        """Fetch no more keys."""
        if self.keys is not None:
            self.keys.close()
            self.keys = None

    def _take(self, config: Settings) -> None:
        try:
            self._mechanisms: Mapping[str, EnabledMechanism] = {
                name: self._enabled(_Mechanism(config, self._name, name))
                for name in self._names(config)
            }
        except _Unserved as error:
            raise ConfigError(f"listener {self._name}: {error}") from error
        self.max_receive_bytes = config.listener_int(self._name, "sasl.server.max.receive.size")
        self.failure_delay_ms = config.get_int("connection.failed.authentication.delay.ms")

    def _names(self, config: Settings) -> list[str]:
        """Return the names of the enabled mechanisms."""
        enabled = config.listener_text(self._name, "sasl.enabled.mechanisms")
        names = [name.upper() for name in entries(enabled)]
        if "GSSAPI" in names or not names:
            raise _Unserved(
                "GSSAPI (Kerberos) is not served; set sasl.enabled.mechanisms to some of "
                f"{', '.join(_MODULES)}"
            )
        unknown = [name for name in names if name not in _MODULES]
        if unknown:
            raise _Unserved(
                f"{', '.join(unknown)} is not served; sasl.enabled.mechanisms can have "
                f"{', '.join(_MODULES)}"
            )
        if config.listener_text(self._name, "sasl.jaas.config") is not None:
            raise _Unserved(
                "sasl.jaas.config needs the mechanism in its name: "
                f"listener.name.{self._name.lower()}.plain.sasl.jaas.config"
            )
        return names

    def _enabled(self, mechanism: _Mechanism) -> EnabledMechanism:
        handler, name = mechanism.text("sasl.server.callback.handler.class"), mechanism.name
        module = mechanism.login_module()
        begin: Callable[[], Conversation]
        if name == "OAUTHBEARER":
            require("jwt", "security")
            # Imported here, as it takes 60 ms, and only this mechanism needs it.
            from headrace.security.oauthbearer import OAuthBearerServer

            validate = self._token_validator(mechanism, handler, module)
            log_refused = partial(log.warning, "tokens", "a token is refused: %s")
            begin = partial(OAuthBearerServer, validate, log_refused)
        elif handler:
            raise _Unserved(f"sasl.server.callback.handler.class of {name} is not served")
        elif name == "PLAIN":
            if module is None:
                raise _Unserved(
                    f"PLAIN needs its users in {mechanism.full_name('sasl.jaas.config')}: "
                    f'{_MODULES["PLAIN"]} required user_NAME="PASSWORD";'
                )
            begin = partial(plain.PlainServer, module.users)
        else:
            begin = partial(self._scram_server, scram.MECHANISMS[name])
        return EnabledMechanism(begin, mechanism.integer("connections.max.reauth.ms"))

    def _scram_server(self, mechanism: scram.Mechanism) -> scram.ScramServer:
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        find = partial(find_credential, self._catalog, mechanism)
        return scram.ScramServer(mechanism, find, nonce, self._unknown_users(mechanism))

    def _unknown_users(self, mechanism: scram.Mechanism) -> scram.UnknownUsers:
        """Return the made-up credentials, which follow those of the present users."""
        version, unknown = self._unknown.get(mechanism, (-1, None))
        if unknown is None or version != self._catalog.version:
            users = users_by_iterations(self._catalog, mechanism)
            unknown = scram.UnknownUsers(mechanism, self._catalog.secret, users)
            self._unknown[mechanism] = self._catalog.version, unknown
        return unknown

    def _token_validator(
        self, mechanism: _Mechanism, handler: str, module: jaas.LoginModule | None
    ) -> oauthbearer.Validate:
        from headrace.security import oauthbearer

        from .jwks import KeySource

        if handler == _UNSECURED:
            log.warning(
                "",
                "listener %s accepts OAUTHBEARER tokens without a signature: everybody can log in "
                "as anybody",
                self._name,
            )
            return partial(oauthbearer.validate_unsecured, _unsecured_rules(module))
        if handler and handler not in _SIGNED:
            raise _Unserved("sasl.server.callback.handler.class of OAUTHBEARER is not served")
        if mechanism.text("sasl.oauthbearer.jwt.validator.class") not in _VALIDATORS:
            raise _Unserved("sasl.oauthbearer.jwt.validator.class is not served")
        url = mechanism.text("sasl.oauthbearer.jwks.endpoint.url")
        if not url:
            raise _Unserved(
                "OAUTHBEARER needs the keys of its tokens in sasl.oauthbearer.jwks.endpoint.url. "
                "For tokens without a signature, in development only, set "
                f"{mechanism.full_name('sasl.server.callback.handler.class')} to {_UNSECURED}"
            )
        issuer = mechanism.text("sasl.oauthbearer.expected.issuer")
        audiences = entries(mechanism.text("sasl.oauthbearer.expected.audience"))
        for claim, expected, unverified in (
            ("audience", audiences, "sasl.oauthbearer.allow.unverified.audience"),
            ("issuer", issuer, "sasl.oauthbearer.allow.unverified.issuer"),
        ):
            if expected:
                continue
            if not mechanism.value(unverified):
                raise _Unserved(
                    f"OAUTHBEARER needs the {claim} of its tokens in "
                    f"sasl.oauthbearer.expected.{claim}. To accept tokens with any {claim}, set "
                    f"{unverified} to true"
                )
            log.warning(
                claim,
                "listener %s accepts OAUTHBEARER tokens with any %s, also those that were made "
                "for other services: set sasl.oauthbearer.expected.%s",
                self._name,
                claim,
                claim,
            )
        rules = oauthbearer.TokenRules(
            audiences=audiences,
            issuer=issuer or None,
            scope_claim=mechanism.text("sasl.oauthbearer.scope.claim.name"),
            name_claim=mechanism.text("sasl.oauthbearer.sub.claim.name"),
            clock_skew_ms=mechanism.integer("sasl.oauthbearer.clock.skew.seconds") * 1000,
        )
        try:
            self.keys = KeySource(
                url,
                refresh_ms=mechanism.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
                backoff_ms=mechanism.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
                max_backoff_ms=mechanism.integer(
                    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
                ),
            )
        except ValueError as error:
            raise _Unserved(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from error
        return partial(oauthbearer.validate_signed, rules, self.keys.present, self.keys.refresh)


def _unsecured_rules(module: jaas.LoginModule | None) -> oauthbearer.TokenRules:
    """Return the rules in options of the login module that Kafka has for tokens without a
    signature.
    """
    from headrace.security.oauthbearer import TokenRules

    options = {} if module is None else module.options
    prefix = "unsecuredValidator"
    skew = options.get(f"{prefix}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(f"{prefix}AllowableClockSkewMs is not a number of milliseconds")
    return TokenRules(
        name_claim=options.get(f"{prefix}PrincipalClaimName", "sub"),
        scope_claim=options.get(f"{prefix}ScopeClaimName", "scope"),
        clock_skew_ms=int(skew),
        required_scopes=options.get(f"{prefix}RequiredScope", "").split(),
    )
