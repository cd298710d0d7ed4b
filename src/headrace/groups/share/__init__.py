"""Share groups' membership (KIP-932)."""
