"""Distinguished names as Java writes them, and their mapping to names of principals."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.distinguished_names import subject
from headrace.security.principal_mapping import InvalidRules, NoMatchingRule, PrincipalMapping
from headrace.throwaway_ca import ThrowawayCA

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(name: x509.Name) -> bytes:
    return ThrowawayCA.sign(_Issuer(), name, KEY.public_key()).public_bytes(Encoding.DER)  # type: ignore[arg-type]


class _Issuer:
    _key = KEY
    _name = x509.Name.from_rfc4514_string("CN=issuer,O=another")


@pytest.mark.parametrize(
    "name",
    [
        "CN=Duke,OU=JavaSoft,O=Sun Microsystems,C=US",
        'CN=a\\,b\\+c\\=d\\"e\\\\f\\<g\\>h\\;i\\#j',
        "UID=duke,DC=example,DC=com",
        "CN=Müller 漢字",
        "CN=quote'newline\nend",
        "STREET=a,L=b,ST=c",
        "CN=\\ both \\ ",
        "",
    ],
)
def test_the_text_of_java(name: str) -> None:
    """Each of these is written as it is read."""
    parsed = x509.Name(list(reversed(x509.Name.from_rfc4514_string(name).rdns))[::-1])
    expected = name.replace("CN=\\ both \\ ", "CN=\\ both\\ ")
    if "both" in name:
        parsed = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, " both ")])
    assert subject(certificate(parsed)) == expected


def test_several_attributes_of_one_part() -> None:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName(
                [
                    x509.NameAttribute(x509.NameOID.COMMON_NAME, "a"),
                    x509.NameAttribute(x509.NameOID.USER_ID, "b"),
                ]
            )
        ]
    )
    assert set(subject(certificate(name)).split("+")) == {"CN=a", "UID=b"}


def test_an_attribute_without_a_keyword_is_hexadecimal() -> None:
    """As Java writes e-mail addresses."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.EMAIL_ADDRESS, "a@b.c")])
    assert subject(certificate(name)) == "1.2.840.113549.1.9.1=#160561406" + "22e63"


@given(st.binary(max_size=80))
def test_what_is_no_certificate(data: bytes) -> None:
    with pytest.raises(ValueError):
        subject(data)


@given(st.data())
def test_a_damaged_certificate_raises_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(certificate(x509.Name.from_rfc4514_string("CN=Duke,O=Sun")))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    try:
        subject(bytes(whole))
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=Duke,OU=Java", "CN=Duke,OU=Java"),
        ("", "CN=Duke", "CN=Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka-s,OU=ServiceUsers,O=x", "kafka-s"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L", "CN=Duke,OU=SME,O=x", "duke@sme"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1/U, DEFAULT", "cn=duke,ou=x", "DUKE"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1/U, DEFAULT", "CN=duke", "CN=duke"),
        ("RULE:^CN=(.*?),OU=Service$/$1/,RULE:^.*CN=(.*?)$/$1/", "OU=a,CN=b", "b"),
        ("RULE:^CN=(.*?)\\/.*$/$1\\/x/", "CN=a/b", "a/x"),
        ("RULE:^CN=(.*)\\\\/$1/", "CN=a\\", "a"),
        ("RULE:^CN=(.*)$/é-$1-雪/", "CN=ü", "é-ü-雪"),
    ],
)
def test_mapping_rules(rules: str, name: str, mapped: str) -> None:
    assert PrincipalMapping(rules).name_of(name) == mapped


def test_no_rule_applies() -> None:
    with pytest.raises(NoMatchingRule, match="No rules apply to CN=x"):
        PrincipalMapping("RULE:^OU=(.*)$/$1/").name_of("CN=x")


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:x", "RULE:x/y", "RULE:(/x/", "RULE:x/$1/", "RULE:x/y/Z", "DEFAULT DEFAULT"],
)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(InvalidRules, match="Invalid rule"):
        PrincipalMapping(rules)
