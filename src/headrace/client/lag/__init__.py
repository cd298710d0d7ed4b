"""Snapshots of the progress and lag of all groups of a cluster."""
