"""OpenTelemetry traces of consumers and producers (extra ``otel``).

    from kadence.otel import trace

    trace(consumer, producer)

The room stands above the clients and changes single ones, those that `trace` is given. A client that is not traced
has no step more for it. Any thread may call `trace`; spans begin and end on the threads of those who send, poll and
handle, and those of records that are sent end on the producer's network thread.
"""

from __future__ import annotations

from kadence.errors import MissingDependencyError

try:
    import opentelemetry.trace
except ImportError as error:
    raise MissingDependencyError(
        "traces need opentelemetry-api: pip install 'kadence[otel]', and an SDK that takes them"
    ) from error

from kadence.otel.tracing import Tracing, trace

__all__ = ["Tracing", "trace"]

del opentelemetry
