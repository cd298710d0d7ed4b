"""Properties files of Kafka clients: what is taken, ignored and refused."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from headrace.client.errors import UnsupportedSetting
from headrace.client.java_properties import JAVA, LIBRDKAFKA, config_of_file

LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' "
    "password='SECRET';"
)
MANAGED = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": LOGIN,
    "client.dns.lookup": "use_all_dns_ips",
    "session.timeout.ms": "45000",
    "acks": "all",
    "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "interceptor.classes": "io.confluent.monitoring.clients.interceptor.MonitoringProducer",
    "schema.registry.url": "https://example.com",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "A:${env:B}",
    "sasl.login.refresh.window.factor": "0.8",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
}


def test_a_file_of_a_managed_cluster() -> None:
    assert config_of_file(MANAGED, {"bootstrap.servers": "a:1"}) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "KEY",
        "sasl.password": "SECRET",
        "client.dns.lookup": "use_all_dns_ips",
        "session.timeout.ms": "45000",
        "acks": "all",
    }


def test_overrides_take_precedence_and_stay() -> None:
    config = config_of_file({"acks": "all"}, {"acks": "1", "no.such.name": "x"})
    assert config == {"acks": "1", "no.such.name": "x"}


def is_known_to_librdkafka(name: str) -> bool:
    with pytest.raises(KafkaException) as raised:  # the second setting is wrong in any case
        Producer({name: "\x01", "?": ""})
    return f'No such configuration property: "{name}"' not in str(raised.value)


def test_the_names_of_librdkafka_are_those_of_the_one_installed() -> None:
    assert {name for name in LIBRDKAFKA if not is_known_to_librdkafka(name)} == set()
    assert {name for name in JAVA if is_known_to_librdkafka(name)} == set()


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        ({"fetch.max.wait.ms": "9"}, {"fetch.wait.max.ms": "9"}),
        ({"max.request.size": "5000"}, {"message.max.bytes": "5000"}),
        ({"receive.buffer.bytes": "5000"}, {"socket.receive.buffer.bytes": "5000"}),
        ({"send.buffer.bytes": "-1"}, {}),
        ({"client.dns.lookup": "default"}, {}),
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
        (
            {
                "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor, "
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            },
            {"partition.assignment.strategy": "range,cooperative-sticky"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "k"},
            {"ssl.keystore.location": "k"},
        ),
        (
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "ca.pem",
                "ssl.truststore.password": "x",
            },
            {"ssl.ca.location": "ca.pem"},
        ),
        ({"ssl.provider": ""}, {}),
    ],
)
def test_what_java_writes_in_another_way(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert config_of_file(java) == librdkafka
    assert config_of_file(librdkafka) == librdkafka


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        (
            {"sasl.usernam": "S3CRET"},
            "sasl.usernam is no setting of clients; did you mean sasl.use",
        ),
        ({"session.timout.ms": "1"}, "did you mean session.timeout.ms?"),
        ({"bootstrap.server": "a:1"}, "did you mean bootstrap.servers?"),
        ({"ssl.trustore.location": "a"}, "did you mean ssl.truststore.location?"),
        ({"ssl.truststore.location": "a.jks"}, "set ssl.truststore.type=PEM"),
        ({"ssl.truststore.type": "JKS"}, "convert it to PEM"),
        ({"ssl.keystore.type": "JKS"}, "set ssl.keystore.type=PEM"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "ssl.enabled.protocols is not supported here"),
        ({"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class is not supported here"),
        ({"sasl.client.callback.handler.class": "x.Y"}, "would change how connections are secured"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "is not supported here"),
        ({"security.providers": "x.Y"}, "security.providers is not supported here"),
        ({"sasl.password": "${env:S3CRET}"}, "sasl.password has a placeholder"),
        ({"sasl.jaas.config": LOGIN.replace("SECRET", "${file:/S3CRET:p}")}, "jaas.config has a"),
        ({"sasl.jaas.config": "x required password=a S3CRET;"}, "jaas.config cannot be read: its"),
        ({"bootstrap.servers": "${directory:/a:b}"}, "bootstrap.servers has a placeholder"),
    ],
)
def test_what_is_refused_is_named_and_no_value_is_shown(
    properties: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UnsupportedSetting) as raised:
        config_of_file(properties)
    assert complaint in str(raised.value)
    assert "S3CRET" not in str(raised.value)


def test_a_placeholder_in_an_override_is_refused() -> None:
    with pytest.raises(UnsupportedSetting, match=r"sasl\.password has a placeholder"):
        config_of_file({}, {"sasl.password": "${env:PASSWORD}"})
