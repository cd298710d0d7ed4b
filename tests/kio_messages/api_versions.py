"""ApiVersions (18), version 5 (KIP-1242), in the form of kio's classes, which end with version 4.

A module of its own, as every start and every client needs it. Its fields are those of
``common/message/ApiVersions*.json`` in Kafka's published ``kafka-clients`` jar.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.api_versions.v4.response import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.types import BrokerId
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32Timedelta, i64


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """Kafka's request.

    :ivar cluster_id: the cluster that the client means to be connected to, None if it does not say
    :ivar node_id: likewise the broker; -1 if the client does not say
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(5)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(18)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: BrokerId = field(metadata={"kafka_type": "int32"}, default=BrokerId(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """Kafka's response, as in version 4."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(5)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(18)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    api_keys: tuple[ApiVersion, ...]
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    supported_features: tuple[SupportedFeatureKey, ...] = field(metadata={"tag": 0}, default=())
    finalized_features_epoch: i64 = field(
        metadata={"kafka_type": "int64", "tag": 1}, default=i64(-1)
    )
    finalized_features: tuple[FinalizedFeatureKey, ...] = field(metadata={"tag": 2}, default=())
    zk_migration_ready: bool = field(metadata={"kafka_type": "bool", "tag": 3}, default=False)


REQUESTS: dict[tuple[int, int], Any] = {(18, 5): ApiVersionsRequest}
RESPONSES: dict[tuple[int, int], Any] = {(18, 5): ApiVersionsResponse}
