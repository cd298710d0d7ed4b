"""Values that stand elsewhere: ``${provider:[path:]key}`` in a broker's configuration, with the
providers of Apache Kafka (KIP-297, KIP-421, KIP-887).

A broker with a variable that nothing replaces would have its text for a password. So it does not
start, where Apache Kafka keeps the text. Errors name variables, and never what they stand for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from headrace.properties import properties
from headrace.protocol.configuration import entries

PROVIDERS = "config.providers"
PROVIDER_PREFIX = f"{PROVIDERS}."
MAX_PROVIDED_BYTES = 1 << 20
"""The limit of a file that a provider reads."""

_PACKAGE = "org.apache.kafka.common.config.provider"
_PART = r"(?:[^:}$]|\$(?!\{))*"
_VARIABLE = re.compile(
    rf"\$\{{(?P<provider>{_PART}):(?:(?P<path>{_PART}):)?(?P<key>(?:[^}}$]|\$(?!\{{))*)\}}"
)
"""A variable. It ends before the next ``${``, so that the search takes linear time."""


class InvalidVariable(ValueError):
    """A variable or a provider that the broker cannot use. The message is for the user."""


Lookup = Callable[[str, str], str]
"""Returns the value of a path and a key.

:raises InvalidVariable: there is none
"""


class Resolved(NamedTuple):
    """A configuration without variables.

    :ivar values: the configs, without those of the providers' parameters
    :ivar replaced: the names of the configs that had variables
    :ivar problems: for the user, why variables or providers cannot be used
    """

    values: Mapping[str, str]
    replaced: frozenset[str]
    problems: tuple[str, ...]


def has_variable(text: str) -> bool:
    """Return whether a value refers to a provider."""
    return _VARIABLE.search(text) is not None


def resolve(configs: Mapping[str, str]) -> Resolved:
    """Replace the variables in the values of configs.

    The values of providers are taken as they are: a variable in them is not replaced.
    """
    values = {name: text for name, text in configs.items() if not name.startswith(PROVIDER_PREFIX)}
    of_providers = {name: text for name, text in configs.items() if name not in values}
    try:
        lookups = _lookups(values.get(PROVIDERS, ""), of_providers)
    except InvalidVariable as error:
        return Resolved(values, frozenset(), (str(error),))
    replaced, problems = set(), []
    for name, text in values.items():
        if not has_variable(text):
            continue
        if has_variable(_VARIABLE.sub("", text)):
            problems.append(f"{name} has a variable in a variable: write the inner one out")
            continue
        try:
            values[name] = _VARIABLE.sub(lambda variable: _value(variable, lookups), text)
            replaced.add(name)
        except InvalidVariable as error:
            problems.append(f"{name}: {error}")
    return Resolved(values, frozenset(replaced), tuple(problems))


def _value(variable: re.Match[str], lookups: Mapping[str, Lookup]) -> str:
    provider, path, key = variable["provider"], variable["path"] or "", variable["key"]
    lookup = lookups.get(provider)
    if lookup is None:
        # Nor is its key shown: the text may be a password that looks like a variable.
        raise InvalidVariable(
            f"nothing replaces ${{{provider}:…}}: name {provider} in {PROVIDERS}, and its class in "
            f"{PROVIDER_PREFIX}{provider}.class, such as {_PACKAGE}.EnvVarConfigProvider"
        )
    try:
        return lookup(path, key)
    except InvalidVariable as error:
        raise InvalidVariable(f"nothing replaces {variable[0]}: {error}") from None


def _lookups(listed: str, of_providers: Mapping[str, str]) -> Mapping[str, Lookup]:
    """Return the look-up of each provider by its name.

    :param listed: the value of ``config.providers``
    :raises InvalidVariable: the configs of a provider are wrong
    """
    for name, text in {PROVIDERS: listed, **of_providers}.items():
        if has_variable(text):
            raise InvalidVariable(f"{name} cannot have a variable: providers are made before them")
    names = entries(listed)
    for config in of_providers:
        if config.removeprefix(PROVIDER_PREFIX).partition(".")[0] not in names:
            raise InvalidVariable(f"{config} is of a provider that {PROVIDERS} does not name")
    return {name: _lookup(name, of_providers) for name in names}


def _lookup(name: str, of_providers: Mapping[str, str]) -> Lookup:
    prefix = f"{PROVIDER_PREFIX}{name}."
    configs = {
        config.removeprefix(prefix): text.strip()
        for config, text in of_providers.items()
        if config.startswith(prefix)
    }
    class_name = configs.pop("class", "")
    parameter = _PARAMETERS.get(class_name)
    if parameter is None:
        served = ", ".join(_PARAMETERS)
        raise InvalidVariable(f"{prefix}class must be one of {served}, not {class_name or 'empty'}")
    limit = configs.pop(f"param.{parameter}", None)
    setting = f"{prefix}param.{parameter}"
    if configs:  # a misspelt limit would limit nothing
        raise InvalidVariable(
            f"{prefix}{next(iter(configs))} is no config of this provider, which has {prefix}class "
            f"and {setting}"
        )
    if class_name == _ENVIRONMENT:
        try:
            names = re.compile(".*" if limit is None else limit, re.DOTALL)
        except re.error as error:
            raise InvalidVariable(f"{setting} is no regular expression: {error}") from None
        return partial(_of_environment, setting, names)
    paths = limit.split(",") if limit else ["/"]
    for path in paths:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise InvalidVariable(f"{setting}: {path} must be absolute and exist")
    look_up = _of_file if class_name == _FILE else _of_directory
    return partial(look_up, [os.path.realpath(path) for path in paths])


_ENVIRONMENT, _FILE, _DIRECTORY = (
    f"{_PACKAGE}.{name}ConfigProvider" for name in ("EnvVar", "File", "Directory")
)
_PARAMETERS = {
    _ENVIRONMENT: "allowlist.pattern",
    _FILE: "allowed.paths",
    _DIRECTORY: "allowed.paths",
}
"""The parameter of each class."""


def _of_environment(setting: str, names: re.Pattern[str], path: str, key: str) -> str:
    if path:
        raise InvalidVariable("environment variables have no path: write ${PROVIDER:NAME}")
    if names.fullmatch(key) is None:
        raise InvalidVariable(f"{setting} does not match it")
    if key not in os.environ:
        raise InvalidVariable("the environment of the broker does not have it")
    return os.environ[key]


def _of_file(allowed: Sequence[str], path: str, key: str) -> str:
    """Return a value of a Java properties file."""
    if not path:
        raise InvalidVariable("it has no path: write ${PROVIDER:FILE:KEY}")
    text = _text(path, allowed)
    try:
        values = properties(text)
    except ValueError as error:
        raise InvalidVariable(f"{path} is no properties file: {error}") from None
    if key not in values:
        raise InvalidVariable(f"{path} does not have that key")
    return values[key]


def _of_directory(allowed: Sequence[str], path: str, key: str) -> str:
    """Return the content of a file of a directory that has one for each key."""
    if not path:
        raise InvalidVariable("it has no path: write ${PROVIDER:DIRECTORY:FILE}")
    if key in ("", ".", "..") or "/" in key:
        raise InvalidVariable("its key must be the name of a file in the directory")
    return _text(os.path.join(path, key), allowed)


def _text(path: str, allowed: Sequence[str]) -> str:
    """Return the content of a file.

    :param allowed: the real paths below which files may be read

    :raises InvalidVariable: it must not be read, or cannot be
    """
    if "\0" in path:
        raise InvalidVariable("its path has a null character")
    real_path = os.path.realpath(path)
    if not any(os.path.commonpath((real_path, directory)) == directory for directory in allowed):
        raise InvalidVariable(f"{path} is not within allowed.paths")
    try:
        # Opening a named pipe would wait for its writer.
        descriptor = os.open(real_path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidVariable(f"{path} is no regular file")
            data = file.read(MAX_PROVIDED_BYTES + 1)
    except OSError as error:
        raise InvalidVariable(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_PROVIDED_BYTES:
        raise InvalidVariable(f"{path} is larger than {MAX_PROVIDED_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidVariable(f"{path} is not UTF-8") from None
