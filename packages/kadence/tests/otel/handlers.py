"""Handlers that child processes import, with a provider of the child's own."""

from __future__ import annotations

import os
from typing import Any

from opentelemetry.trace import get_current_span

from kadence.work import ProducerRecord


def work(record: Any) -> Any:
    """Die, or tell in which trace it runs."""
    if record.value == b"die":
        os._exit(7)
    return ProducerRecord("out", b"%032x" % get_current_span().get_span_context().trace_id)
