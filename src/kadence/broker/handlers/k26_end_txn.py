"""EndTxn (26). v3 flexible  v5 the answer raises the epoch (KIP-890)."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> EndTxnResponse | None:
    code = services.transactions.coordinator_error(call, call.message.transactional_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.transactions.serve(call)
    return None


def refuse(_call: Call, code: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


HANDLER = Handler(EndTxnRequest, handle, refuse)
