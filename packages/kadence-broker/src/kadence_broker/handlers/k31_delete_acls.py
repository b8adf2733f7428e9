"""DeleteAcls (31): answered as by a Kafka without an authorizer, for access rules are not kept here."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kadence_broker.handlers.k29_describe_acls import NO_AUTHORIZER
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(_services: Services, call: Call) -> DeleteAclsResponse:
    return refuse(call, codes.SECURITY_DISABLED, NO_AUTHORIZER)


def refuse(call: Call, code: int, message: str | None = None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) for _ in call.message.filters
        ]
    )


HANDLER = Handler(DeleteAclsRequest, handle, refuse)
