"""What Kadence's own tests stand on, offered to yours.

Nothing of the library imports this room. Thread: whichever thread the test runs on.
"""

from __future__ import annotations

from kadence.testing.clock import FakeClock

__all__ = ["FakeClock"]
