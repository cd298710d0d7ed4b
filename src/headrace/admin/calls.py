"""How the calls that librdkafka lacks are made and answered with futures."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as confluent

from headrace.client import ClientError, Cluster
from headrace.client.settings import Settings, UnsupportedSetting, librdkafka_config, settings

from .loop_thread import Link
from .translation import kafka_exception

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_REQUEST_TIMEOUT_S = 3600


class Calls(confluent.AdminClient):
    """confluent-kafka's admin client with connections of our own beside it, made when first
    needed."""

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        config = librdkafka_config(conf)
        super().__init__(config, **kwargs)
        self._unsupported: UnsupportedSetting | None = None
        self._settings: Settings | None = None
        try:
            self._settings = settings(config)
        except UnsupportedSetting as error:
            self._unsupported = error
        self._link: Link | None = None
        if self._settings is not None:
            self._link = Link(self._settings)
            self._finalizer = weakref.finalize(self, self._link.close)

    def __exit__(self, *exception: Any) -> Any:
        self.close()
        return super().__exit__(*exception)

    def close(self) -> None:
        """Hang up the connections of the share-group calls, whose unfinished futures fail. May be
        called again.
        """
        if self._link is not None:
            self._link.close()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on. See confluent-kafka."""
        super().set_sasl_credentials(username, password)
        if self._link is not None:
            self._link.change_login(username, password)

    def _timeout_ms(self, request_timeout: float | None) -> int:
        if self._settings is None:
            raise KafkaException(
                KafkaError(KafkaError._UNSUPPORTED_FEATURE, str(self._unsupported))
            )
        if request_timeout is None:
            return self._settings.request_timeout_ms
        if not 0 <= request_timeout <= _MAX_REQUEST_TIMEOUT_S:
            raise ValueError(
                f"request_timeout must be in the range 0..{_MAX_REQUEST_TIMEOUT_S} seconds"
            )
        return int(request_timeout * 1000)

    def _futures(
        self,
        keys: Iterable[K],
        work: Callable[[Cluster], Awaitable[Mapping[K, V | ClientError | None]]],
    ) -> dict[K, Future[Any]]:
        """A future for each key, settled with what ``work`` gives for it."""
        futures: dict[K, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            # as in confluent-kafka: what is under way cannot be cancelled
            future.set_running_or_notify_cancel()

        def settle(done: Future[Mapping[K, V | ClientError | None]]) -> None:
            results: dict[K, V | ClientError | None] = dict.fromkeys(
                futures, ClientError("there is no answer")
            )
            try:
                results.update(done.result())
            except CancelledError:
                results = dict.fromkeys(futures, ClientError("the admin client was closed"))
            except BaseException as error:
                for future in futures.values():
                    future.set_exception(kafka_exception(error))
                return
            for key, future in futures.items():
                result = results[key]
                if isinstance(result, ClientError):
                    future.set_exception(kafka_exception(result))
                else:
                    future.set_result(result)

        assert self._link is not None
        self._link.submit(work).add_done_callback(settle)
        return futures


def exception_of(error: ClientError) -> KafkaException:
    """The exception that says the same, for results that list errors."""
    exception = kafka_exception(error)
    assert isinstance(exception, KafkaException)
    return exception
