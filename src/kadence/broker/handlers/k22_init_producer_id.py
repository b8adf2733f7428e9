"""InitProducerId (22): a new id for an idempotent producer (KIP-98). Transactions are refused. v2 flexible."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> InitProducerIdResponse:
    if call.message.transactional_id is not None:
        return refuse(call, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = services.cluster.new_producer_id()
    except OSError:
        return refuse(call, codes.KAFKA_STORAGE_ERROR)
    return InitProducerIdResponse(error_code=codes.NONE, producer_id=producer_id, producer_epoch=0)


def refuse(_call: Call, code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = Handler(InitProducerIdRequest, handle, refuse)
