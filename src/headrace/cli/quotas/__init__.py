"""``headrace quotas``."""
