"""Between sockets and handlers: the declaration of an API, a call of it, and how it is served."""

from headrace.log_lines import LimitedLog

log = LimitedLog("headrace.server")
"""What clients cause on their connections."""
