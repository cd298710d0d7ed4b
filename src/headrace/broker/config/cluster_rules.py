"""The rules for changes of ``min.insync.replicas`` (KIP-966).

Apache Kafka computes eligible leader replicas with one value for the whole cluster: it can be
changed, but not removed, and brokers have no value of their own. Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import ErrorCode, Refusal

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def check_min_insync_replicas(
    broker_name: str, changes: Mapping[str, str | None]
) -> Refusal | None:
    """Return the error for a change of a broker's configs, None if it keeps the rules.

    :param broker_name: the id of the broker; empty for all brokers
    """
    if MIN_INSYNC_REPLICAS not in changes:
        return None
    if broker_name:
        message = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
    elif changes[MIN_INSYNC_REPLICAS] is None:
        message = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
    else:
        return None
    return Refusal(ErrorCode.INVALID_CONFIG, message)
