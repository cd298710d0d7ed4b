"""The configuration of clients under its former names: see :mod:`headrace.client.config`."""

from __future__ import annotations

from .config import ClientConfig as Settings
from .config import check_access, check_login, check_token, librdkafka_config
from .config import read_config as settings
from .errors import UnsupportedSetting

__all__ = [
    "Settings",
    "UnsupportedSetting",
    "check_access",
    "check_login",
    "check_token",
    "librdkafka_config",
    "settings",
]
