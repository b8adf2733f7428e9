"""Records of a stretch of time as an Arrow table, for notebooks and scripts: `read`, and `read_batches`.

It uses the public calls of the consumer alone: each call makes a consumer without a group, looks up one range for each
partition, polls columns, decodes them, and closes the consumer. All of it runs on the caller's thread.
"""

from __future__ import annotations

from kadence.reading.tables import read, read_batches

__all__ = ["read", "read_batches"]
