"""AddOffsetsToTxn (25). v3 flexible  v4 TRANSACTION_ABORTABLE (KIP-890)."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> AddOffsetsToTxnResponse | None:
    code = services.transactions.coordinator_error(call, call.message.transactional_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.transactions.serve(call)
    return None


def refuse(_call: Call, code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


HANDLER = Handler(AddOffsetsToTxnRequest, handle, refuse)
