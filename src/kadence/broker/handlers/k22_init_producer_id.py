"""InitProducerId (22): who a producer is (KIP-98). v2 flexible  v3 the id one has (KIP-360)  v5 transactions v2."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> InitProducerIdResponse | None:
    """Any node serves a producer without transactions; of the others only the coordinator."""
    code = services.transactions.coordinator_error(call, call.message.transactional_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.transactions.serve(call)
    return None


def refuse(_call: Call, code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = Handler(InitProducerIdRequest, handle, refuse)
