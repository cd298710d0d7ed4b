"""The admin client: confluent-kafka's own, and the calls that it lacks."""

from __future__ import annotations

from .consumer_group_calls import ConsumerGroupCalls
from .share_group_calls import ShareGroupCalls


class AdminClient(ShareGroupCalls, ConsumerGroupCalls):
    """``confluent_kafka.admin.AdminClient`` with share groups (KIP-932, KIP-1226) and all about
    consumer groups.

    It is used in the same way: calls return at once with futures, whose results come or which fail
    with ``KafkaException``. It works against headrace and against Apache Kafka 4.1 or later::

        from headrace.admin import AdminClient

        with AdminClient({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
            offsets = admin.list_share_group_offsets(["packers"])["packers"].result()
            for partition, info in offsets.items():
                print(partition.topic, partition.partition, info.start_offset, info.lag)

    Configs of a group, such as ``share.auto.offset.reset``, are read and set with
    ``describe_configs`` and ``incremental_alter_configs`` and a
    ``ConfigResource(ResourceType.GROUP, group_id)``.

    What librdkafka lacks goes over connections of our own, which are made with the first such call.
    They honour ``bootstrap.servers`` (here also a list), ``client.id``, ``socket.timeout.ms``,
    ``socket.connection.setup.timeout.ms`` and security: TLS with PEM files, SASL with PLAIN,
    SCRAM-SHA-256 and SCRAM-SHA-512. With any other kind of security these calls raise
    ``KafkaException``, and the others work.

    Each call here takes ``request_timeout``, in seconds: how long it may take, retries included
    (default: ``socket.timeout.ms``). Usable from several threads. Leave it with ``with`` or
    :meth:`close`.

    :param conf: librdkafka's configuration properties
    """
