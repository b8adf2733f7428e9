"""What TLS needs besides TCP: the stream of a connection, and the words of its errors.

Only connections with TLS load it: it loads `ssl`, which takes a tenth of a client's start.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from kadence.net.intake import Intake, PlainIntake

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TlsStream", "advice", "has_ended", "is_refusal", "words"]

_REFUSALS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
_NOT_IN_TIME: Final = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_OTHER_NAME: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class TlsStream:
    """TLS by the ssl module."""

    __slots__ = ("_sock", "intake", "session")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.session = None
        self.intake: Intake = PlainIntake(self.read_now)

    def read_now(self, into: memoryview) -> int | None:
        try:
            return self._sock.recv_into(into)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    has_unwritten = False

    def write_now(self, pieces: Sequence[memoryview]) -> int | None:
        try:
            return self._sock.send(pieces[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None


def has_ended(sock: ssl.SSLSocket) -> bool:
    """Continue the handshake. False: it waits for the other side.

    Raises:
        OSError, ValueError: it failed.
    """
    try:
        sock.do_handshake()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    return True


def is_refusal(error: ssl.SSLError) -> bool:
    """Whether the other side did not accept this client's certificate."""
    reason = error.reason or ""
    return "ALERT" in reason and any(word in reason for word in _REFUSALS)


def advice(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the other side's certificate, and what to do."""
    return f"{error.verify_message or error.reason}. {_cure(error)}"


def _cure(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OTHER_NAME:
        return (
            "Use a name that is in the certificate: bootstrap.servers has the first address, the brokers' "
            "advertised.listeners have the others"
        )
    if error.verify_code in _NOT_IN_TIME:
        return (
            "Give the broker a certificate that is valid now, or correct this machine's clock; no setting of the "
            "client helps"
        )
    return "Set ssl.ca.location to a PEM file with the authorities to trust"


def words(error: ssl.SSLError) -> str:
    """The error in a few words, with its usual meaning."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if error.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"):
        return f"{reason} (does this listener speak TLS? security.protocol asks for it)"
    return reason
