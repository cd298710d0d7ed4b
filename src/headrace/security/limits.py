"""The limits of the machines of security."""

MAX_CACHED_DECISIONS = 20_000
"""The decisions of an authorizer that are remembered; one more forgets them all. A decision takes
about 300 bytes.
"""

ACLS_PER_STEP = 500
"""The ACLs that a search compares with a filter before other requests are served."""
