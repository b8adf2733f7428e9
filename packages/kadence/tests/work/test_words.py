"""What the log says of work that ends badly: what is so, and nothing that frightens."""

from __future__ import annotations

import logging

import pytest
from tests.work.worlds import Simulated

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit import OffsetCommitRequest


@pytest.mark.parametrize("is_away", [True, False])
def test_of_a_commit_that_failed_it_is_not_said_who_has_the_partitions(
    simulated: Simulated, caplog: pytest.LogCaptureFixture, is_away: bool
) -> None:
    caplog.set_level(logging.WARNING, "kadence.work")
    simulated.is_checked = False
    simulated.write("one", 20)
    seen: list[object] = []
    member = simulated.member("one", auto_commit_interval_ms=600_000)
    call = member.processes(seen.append)
    simulated.until(lambda: len(seen) == 20)
    if is_away:
        simulated.cluster.virtual_broker.stop_node(1)
    else:  # the coordinator has removed it, as after a pause, and nobody else has joined
        simulated.faults.error(OffsetCommitRequest, codes.UNKNOWN_MEMBER_ID)
    member.begin(lambda consumer: consumer.stop(grace=5))
    call.result()
    member.close()
    said = [each.getMessage() for each in caplog.records if "commit failed" in each.getMessage()]
    assert said
    assert all(text.startswith("commit failed; some records will be redelivered: ") for text in said)
