"""CreateAcls (30): answered as by a Kafka without an authorizer, for access rules are not kept here."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kadence_broker.handlers.k29_describe_acls import NO_AUTHORIZER
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(_services: Services, call: Call) -> CreateAclsResponse:
    return refuse(call, codes.SECURITY_DISABLED, NO_AUTHORIZER)


def refuse(call: Call, code: int, message: str | None = None) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in call.message.creations]
    )


HANDLER = Handler(CreateAclsRequest, handle, refuse)
