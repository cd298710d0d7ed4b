"""The protection of each listener: TLS, and the SASL mechanisms of its clients.

The modules of TLS and SASL are imported by the first listener that needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.protocol.errors import ConfigError, Refusal, invalid_request
from headrace.topics.catalog import Catalog
from headrace.topics.settings import Settings

from .listeners import Listener

if TYPE_CHECKING:
    from .authentication import SaslListener
    from .tls.listener import TlsListener

TLS_FILE_CHECK_S = 5.0
"""The time between two checks of the files of key stores and trust stores for changes."""


_PREFIXES = ("connection", "listener.name.", "sasl.", "ssl.")
"""The beginnings of the names of configs that matter here."""


class ListenerSecurity(NamedTuple):
    """The protection of one listener.

    :ivar tls: None without TLS
    :ivar sasl: None without logins
    """

    tls: TlsListener | None = None
    sasl: SaslListener | None = None


class ListenerSecurities:
    """The protection of all listeners of a broker."""

    def __init__(self, config: Settings, catalog: Catalog) -> None:
        self._config = config
        self._catalog = catalog
        self._tls: list[TlsListener] = []
        self._sasl: list[SaslListener] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, listener: Listener) -> ListenerSecurity:
        """Return the protection of a listener.

        :raises ConfigError: when its settings cannot be used
        """
        tls, sasl = None, None
        if listener.protocol.uses_tls:
            from .tls.listener import TlsListener

            tls = TlsListener(listener.name, self._config)
            self._tls.append(tls)
        if listener.protocol.uses_sasl:
            from .authentication import SaslListener

            sasl = SaslListener(listener.name, self._config, self._catalog)
            self._sasl.append(sasl)
            sasl.start()
        return ListenerSecurity(tls, sasl)

    def _concerned(self, changed: Iterable[str]) -> Sequence[TlsListener | SaslListener]:
        """Return what takes over a configuration with these changes."""
        is_concerned = any(name.startswith(_PREFIXES) for name in changed)
        return (*self._tls, *self._sasl) if is_concerned else ()

    async def ready(self) -> None:
        """Wait until clients can log in."""
        for sasl in self._sasl:
            if sasl.keys is not None:
                await sasl.keys.tried()

    def start(self) -> None:
        """Watch the files of key stores and trust stores until :meth:`close`."""
        if self._tls:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TLS_FILE_CHECK_S, self._check_files)

    def _check_files(self) -> None:
        for tls in self._tls:
            tls.reload_changed_files()
        self.start()

    def check_changes(self, changes: Mapping[str, str | None]) -> Refusal | None:
        """Return the error for a change of this broker's configs at run time, None if the listeners
        can take it over.
        """
        config = self._config.with_changes(changes)
        try:
            for part in self._concerned(changes):
                part.check(config)
        except ConfigError as error:
            return invalid_request(str(error))
        return None

    def reload(self, changed: Iterable[str]) -> None:
        """Use the present configuration for new connections, if one of these configs matters."""
        for part in self._concerned(changed):
            part.reload()

    def close(self) -> None:
        """Stop watching files, and end other work in the background."""
        if self._timer is not None:
            self._timer.cancel()
        for sasl in self._sasl:
            sasl.close()
