"""All that is fuzzed, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import (
    batches,
    blobs,
    directories,
    dispatch,
    documents,
    logins,
    messages,
    odd_schemas,
    recovery,
    registries,
    stored,
    texts,
    values,
)
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
        directories.DIRECTORIES,
        dispatch.DISPATCH,
        documents.DOCUMENTS,
        blobs.COMMITS,
        values.AVRO,
        values.PROTOBUF,
        values.JSON_SCHEMA,
        values.JSON,
        odd_schemas.ODD_SCHEMAS,
        logins.CHALLENGES,
        logins.WORDS,
        logins.TOKENS,
        registries.REGISTRIES,
        texts.SCHEMAS,
        texts.SETTINGS,
        texts.LETTERS,
    )
}
