"""TLS: keys and certificates from a configuration, and connections that use them."""

from headrace.log_lines import LimitedLog

log = LimitedLog("headrace.tls")
