"""DescribeTransactions (65): ids that the asked node coordinates; of the others NOT_COORDINATOR (KIP-664)."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    def amend(response: DescribeTransactionsResponse) -> None:
        for at, each in enumerate(response.transaction_states):
            code = services.transactions.coordinator_error(call, each.transactional_id)
            if code != codes.NONE:
                response.transaction_states[at] = _refused(each.transactional_id, code)

    services.transactions.serve(call, amend)


def _refused(transactional_id: str, code: int) -> TransactionState:
    return TransactionState(error_code=code, transactional_id=transactional_id)


def refuse(call: Call, code: int) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_refused(each, code) for each in call.message.transactional_ids]
    )


HANDLER = Handler(DescribeTransactionsRequest, handle, refuse)
