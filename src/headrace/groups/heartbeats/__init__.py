"""Groups whose members send heartbeats: what consumer, share and streams groups have in common."""
