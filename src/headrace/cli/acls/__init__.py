"""``headrace acls``."""
