"""ApiVersions (18): which APIs and versions there are. v3 flexible, with the client's name  v4 features from 0.

v5 which node of which cluster is meant (KIP-1242)

A version above ours is answered too, in the format of v0 with UNSUPPORTED_VERSION, so that any client
can find out what to speak. `dispatch` sees to that; the header of the answer is v0 in every version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kadence_broker.service import Call, Handler, Services

__all__ = ["make_handler", "offer"]


_FEATURES: Final = {"group.version": 1, "share.version": 2, "transaction.version": 2}
"""Features that clients look for before they use KIP-848 groups, share groups and transactions v2 (KIP-584).

All are in use; the level of share groups is the broker's to choose, and 0 switches them off.
"""

_FIRST_LEVEL_0_VERSION: Final = 4
"""Older clients reject features whose lowest level is 0 (KAFKA-17011)."""


_FIRST_NAMED_VERSION: Final = 3
_NO_NODE: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""Names and versions of clients that Kafka takes (KIP-511)."""


def offer(
    handlers: Iterable[Handler], error_code: int = codes.NONE, version: int = 0, share_level: int = 0
) -> ApiVersionsResponse:
    """The ApiVersions response of these handlers, for a client that asks in ``version``."""
    levels = {**_FEATURES, "share.version": share_level}
    return ApiVersionsResponse(
        error_code=error_code,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in _FEATURES.items()
            if version >= _FIRST_LEVEL_0_VERSION
        ],
        finalized_features_epoch=1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in levels.items()
            if level > 0
        ],
        api_keys=[
            ApiVersion(api_key=each.api_key, min_version=each.versions[0], max_version=each.versions[1])
            for each in sorted(handlers, key=lambda each: each.api_key)
        ],
    )


def make_handler(others: Iterable[Handler]) -> Handler:
    """The handler, knowing all others."""
    known: list[Handler] = list(others)

    def handle(services: Services, call: Call) -> ApiVersionsResponse:
        asked: ApiVersionsRequest = call.message
        software = (asked.client_software_name, asked.client_software_version)
        if call.version >= _FIRST_NAMED_VERSION and not all(_SOFTWARE.fullmatch(each) for each in software):
            return ApiVersionsResponse(error_code=codes.INVALID_REQUEST)
        if (asked.cluster_id is None) != (asked.node_id == _NO_NODE):
            return ApiVersionsResponse(error_code=codes.INVALID_REQUEST)
        here = (services.cluster.cluster_id, call.node_id)
        if asked.cluster_id is not None and (asked.cluster_id, asked.node_id) != here:
            return ApiVersionsResponse(error_code=codes.REBOOTSTRAP_REQUIRED)
        return offer(known, version=call.version, share_level=services.settings.share_version)

    def refuse(call: Call, code: int) -> ApiVersionsResponse:
        return offer(known, code, call.version)

    handler = Handler(ApiVersionsRequest, handle, refuse)
    known.append(handler)
    return handler
