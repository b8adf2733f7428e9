"""What the tests of drivers have in common."""

from __future__ import annotations

import pytest
from tests.patience import PATIENCE

from kadence_spark.source import commits


@pytest.fixture(autouse=True)
def _idle_queries_wait_for_their_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is not enough for a thread of a busy machine."""
    monkeypatch.setattr(commits, "IDLE_SECONDS", PATIENCE)
