"""``headrace keda-scaler``."""
