"""The configs of the authorizer: ``authorizer.class.name``, ``super.users`` and
``allow.everyone.if.no.acl.found``.
"""

from __future__ import annotations

from headrace.security.principal import Principal
from headrace.topics.settings import BrokerValue

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only authorizer."""
AUTHORIZER, SUPER_USERS = "authorizer.class.name", "super.users"
ALLOW_WITHOUT_ACLS = "allow.everyone.if.no.acl.found"


def check_authorizer(broker: BrokerValue) -> str | None:
    """Return the error in the configs of the authorizer, None if they are valid."""
    authorizer = broker(AUTHORIZER)
    if authorizer not in ("", None, STANDARD_AUTHORIZER):
        return f"{AUTHORIZER} must be empty or {STANDARD_AUTHORIZER}, not {authorizer}"
    try:
        super_users(str(broker(SUPER_USERS) or ""))
    except ValueError as error:
        return f"Invalid value for configuration {SUPER_USERS}: {error}"
    return None


def super_users(text: str) -> frozenset[str]:
    """Return the principals in ``super.users``, as text.

    :raises ValueError: when one of them is no principal
    """
    users = (one.strip() for one in text.split(";"))
    return frozenset(str(Principal.parse(one)) for one in users if one)
