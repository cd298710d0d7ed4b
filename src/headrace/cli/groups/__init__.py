"""``headrace groups``, and what all commands on groups share."""
