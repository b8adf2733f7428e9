"""All that is fuzzed, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import batches, blobs, dispatch, documents, messages, recovery, stored
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

TARGETS: Final[dict[str, Target]] = {
    each.name: each
    for each in (
        messages.REQUESTS,
        messages.ANSWERS,
        batches.FETCHED,
        batches.PRODUCED,
        batches.COMPRESSED,
        blobs.SUBSCRIPTIONS,
        blobs.ASSIGNMENTS,
        blobs.STICKY,
        stored.GROUPS,
        stored.TRANSACTIONS,
        recovery.RECOVERY,
        dispatch.DISPATCH,
        documents.DOCUMENTS,
    )
}
