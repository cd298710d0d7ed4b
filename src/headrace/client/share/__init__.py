"""A member of a share group and what it remembers (KIP-932)."""
