"""Reading topics on executors."""
