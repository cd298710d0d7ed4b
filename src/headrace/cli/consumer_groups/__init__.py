"""``headrace consumer-groups``."""
