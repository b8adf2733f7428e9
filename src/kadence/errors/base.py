"""The root of everything that Kadence raises."""

__all__ = ["KafkaError"]


class KafkaError(Exception):
    """Root of everything Kadence raises."""

    retriable: bool = False
    """Whether the same call may succeed later without a change by you."""
