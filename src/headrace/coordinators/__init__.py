"""The coordinators' runtime."""
