"""Tools for tests; Kadence's own tests use them, too.

No other package of the library imports this one. Its code runs on the thread of the test.
"""

from __future__ import annotations

from kadence_testing.clock import FakeClock

__all__ = ["FakeClock"]
