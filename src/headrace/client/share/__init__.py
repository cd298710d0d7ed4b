"""A client for share groups (KIP-932)."""
