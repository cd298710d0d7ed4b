"""A consumer of several topics in the order of their timestamps (KIP-695)."""
