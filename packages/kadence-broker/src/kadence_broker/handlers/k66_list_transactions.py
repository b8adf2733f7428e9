"""ListTransactions (66): the ids that the asked node coordinates (KIP-664). v1 by age  v2 by pattern."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    def amend(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            each
            for each in response.transaction_states
            if services.transactions.coordinator_error(call, each.transactional_id) == codes.NONE
        ]

    services.transactions.serve(call, amend)


def refuse(_call: Call, code: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


HANDLER = Handler(ListTransactionsRequest, handle, refuse)
