"""``headrace share-groups``."""
