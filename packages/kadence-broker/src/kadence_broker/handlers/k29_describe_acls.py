"""DescribeAcls (29): answered as by a Kafka without an authorizer, for access rules are not kept here."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER", "NO_AUTHORIZER"]

NO_AUTHORIZER = "No Authorizer is configured."


def handle(_services: Services, _call: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=codes.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


def refuse(_call: Call, code: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code)


HANDLER = Handler(DescribeAclsRequest, handle, refuse)
