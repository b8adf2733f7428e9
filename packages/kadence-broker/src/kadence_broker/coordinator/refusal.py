"""The refusal of a request: an error code and Kafka's message for it."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """The request is refused and changes nothing. Raised before anything is written.

    Attributes:
        code: of the response. message: for people; None if the protocol has no field for it.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
