"""The limits of the machines of security."""

MAX_CACHED_DECISIONS = 20_000
"""The decisions of an authorizer that are remembered; one more forgets them all. A decision takes
about 300 bytes.
"""

MAX_CACHED_NAME_LENGTH = 249
"""The longest name of a resource whose decisions are remembered: that of a topic. Clients may send
names of 32,767 characters.
"""

ACLS_PER_STEP = 500
"""The ACLs that a search compares with a filter before other requests are served."""

MAX_QUOTA_SENSORS = 100_000
"""The users, client ids and addresses whose use of a quota is remembered; one more forgets the one
that was not used for longest. Those that have used nothing within the windows of quotas are
forgotten anyway. Each takes about 700 bytes.
"""

MAX_SENSOR_NAME_LENGTH = 249
"""The characters of a user or client id that tell it apart from others with the same default quota.
Clients may send ids of 32,767 characters.
"""
