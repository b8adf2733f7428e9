"""The base class of everything that Kadence raises."""

__all__ = ["KafkaError"]


class KafkaError(Exception):
    """The base class of all errors that Kadence raises."""

    retriable: bool = False
    """Whether the same call may succeed later without any change to the program or the cluster's settings."""
