"""TLS: keys and certificates from a configuration, and connections that use them."""

from headrace.log_lines import LimitedLog, get_logger

log = LimitedLog(get_logger("headrace.tls"))
