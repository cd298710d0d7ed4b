"""``headrace worker``."""
