"""The TLS of one listener: its context, replaced when files or configs change, and the principals
of certificates.
"""

from __future__ import annotations

import os
import ssl

from headrace.errors import ConfigError
from headrace.log_lines import get_logger
from headrace.security.distinguished_names import subject
from headrace.security.principal import ANONYMOUS, USER, Principal
from headrace.security.principal_mapping import InvalidRules, PrincipalMapping
from headrace.topics.settings import Settings

from .certificate_changes import check_names, first_certificate
from .contexts import make_context
from .key_material import InvalidMaterial, files, key_store

log = get_logger("headrace.tls")


class TlsListener:
    """The TLS of one listener.

    :param name: the listener's
    :raises ConfigError: when its keys, certificates or other settings cannot be used
    :ivar context: for new connections
    """

    def __init__(self, name: str, config: Settings) -> None:
        self._name = name
        self._config = config
        self._versions = self._file_versions()
        self.context = self._make_context(config)
        self._mapping = self._make_mapping(config)
        self._certificate = self._certificate_of(config)

    def principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client.

        :param certificate: its certificate in DER, None if it has shown none
        :raises ValueError: when no mapping rule applies
        """
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._mapping.name_of(subject(certificate)))

    def check(self, config: Settings) -> None:
        """Check that the listener can take over a configuration.

        :raises ConfigError: when it cannot
        """
        self._make_context(config)
        self._make_mapping(config)
        self._check_names(config)

    def reload(self) -> None:
        """Use the present configuration and files for new connections. If they are not valid, log
        that and go on with those before.
        """
        self._versions = self._file_versions()
        try:
            self._check_names(self._config)
            context = self._make_context(self._config)
            mapping = self._make_mapping(self._config)
            certificate = self._certificate_of(self._config)
        except ConfigError as error:
            log.error("%s; the certificates before are used", error)
            return
        self.context, self._mapping, self._certificate = context, mapping, certificate
        log.info("listener %s has loaded its certificates again", self._name)

    def reload_changed_files(self) -> None:
        """Do the same as :meth:`reload` if a file has changed."""
        if self._file_versions() != self._versions:
            self.reload()

    def _make_context(self, config: Settings) -> ssl.SSLContext:
        try:
            return make_context(lambda name: config.listener_text(self._name, name))
        except InvalidMaterial as error:
            raise ConfigError(f"listener {self._name}: {error}") from error

    def _certificate_of(self, config: Settings) -> bytes:
        try:
            store = key_store(lambda name: config.listener_text(self._name, name))
        except InvalidMaterial as error:
            raise ConfigError(f"listener {self._name}: {error}") from error
        return first_certificate(store.pem)

    def _check_names(self, config: Settings) -> None:
        """Check that the certificate in a configuration may replace the one in use.

        :raises ConfigError: when it has other names
        """
        try:
            check_names(
                self._certificate,
                self._certificate_of(config),
                may_rename=self._allows(config, "ssl.allow.dn.changes"),
                may_drop=self._allows(config, "ssl.allow.san.changes"),
            )
        except (InvalidMaterial, ValueError) as error:
            raise ConfigError(f"listener {self._name}: {error}") from error

    def _allows(self, config: Settings, name: str) -> bool:
        return (config.listener_text(self._name, name) or "false").lower() == "true"

    def _make_mapping(self, config: Settings) -> PrincipalMapping:
        text = config.listener_text(self._name, "ssl.principal.mapping.rules")
        try:
            return PrincipalMapping(text or "")
        except InvalidRules as error:
            raise ConfigError(f"listener {self._name}: {error}") from error

    def _file_versions(self) -> list[tuple[int, int, int] | None]:
        """Return inode, ctime and size of each file, None for a missing one.

        They differ after a change of the content, and also of the owner or the permissions, which
        changes the ctime.
        """
        versions: list[tuple[int, int, int] | None] = []
        for path in files(lambda name: self._config.listener_text(self._name, name)):
            try:
                status = os.stat(path)
                versions.append((status.st_ino, status.st_ctime_ns, status.st_size))
            except OSError:
                versions.append(None)
        return versions
