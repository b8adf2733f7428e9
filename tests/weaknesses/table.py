"""Which test shows that Kadence is free of which weakness of another client.

Drawn into docs/peers.md by tools/docs.py. `test_table.py` holds it against the tests: each that is named here
exists, and each of this room is named. KP is kafka-python 3.0.12, AIO aiokafka 0.14.0, CK confluent-kafka 2.16.1,
RDK the librdkafka in it; a number is an issue or pull request of that project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["WEAKNESSES", "Weakness", "table"]


@dataclass(frozen=True, slots=True)
class Weakness:
    """What hurts, whom, what ours does instead, and the tests that show it (file, function)."""

    hurts: str
    seen: str
    here: str
    tests: tuple[tuple[str, str], ...]


_HERE: Final = "tests/weaknesses"
_DELIVERY: Final = f"{_HERE}/test_delivery.py"
_GROUP: Final = f"{_HERE}/test_group.py"
_WAITING: Final = f"{_HERE}/test_waiting.py"
_FETCHING: Final = f"{_HERE}/test_fetching.py"
_ASYNC: Final = f"{_HERE}/test_async.py"
_PROCESSES: Final = f"{_HERE}/test_processes.py"

WEAKNESSES: Final = (
    Weakness(
        "long or CPU-bound work makes the consumer leave its group",
        "KP #2422 #1491 #2070, AIO #335 #406 #700, CK #552 #629, RDK #2971 #3732",
        "a network thread sends the heartbeats; a warning names the slow line before the consumer has to leave",
        (
            (_GROUP, "test_work_that_keeps_the_processor_busy_keeps_the_membership"),
            (_GROUP, "test_whoever_processes_too_long_is_named_before_and_not_after"),
            (
                "tests/consumer/test_async.py",
                "test_b3_a_loop_that_is_blocked_longer_than_the_session_keeps_its_membership",
            ),
        ),
    ),
    Weakness(
        "alive, but consumes nothing",
        "KP #2605 #1435, RDK #2933 #1605, CK #371 #629, AIO #983",
        "`not_fetched()` gives the reason for each partition",
        (
            (_FETCHING, "test_a_partition_that_is_not_fetched_says_why"),
            (_FETCHING, "test_an_error_of_a_fetch_is_waited_out_and_nothing_is_skipped"),
        ),
    ),
    Weakness(
        "partitions stall after a leader change, or after a listener has run",
        "KP #3106 #3132",
        "a partition leaves every state by itself, or at a deadline",
        (
            (_FETCHING, "test_no_partition_stalls_when_leaders_move_and_answers_are_lost"),
            (_GROUP, "test_a_listener_that_seeks_leaves_no_partition_stuck"),
        ),
    ),
    Weakness(
        "rebalances for nothing",
        "RDK #4742 #3306 #3891, CK #1090 #559, AIO #108, KP #2605",
        "a member joins again only if something changed that its assignor uses, and only once",
        (
            (_GROUP, "test_leaders_that_move_make_nobody_rejoin"),
            (_GROUP, "test_two_assignors_join_once"),
        ),
    ),
    Weakness(
        "no safe moment to commit in a rebalance",
        "KP #746 #1716 #2614, AIO #929 #933",
        "listeners run on your thread before partitions are given up, and may commit",
        (
            (_GROUP, "test_positions_and_commits_work_while_partitions_are_taken_away"),
            ("tests/consumer/test_group.py", "test_callbacks_run_on_the_polling_thread_and_may_commit"),
        ),
    ),
    Weakness(
        "with the default auto-commit a crash loses records",
        "RDK #1122 #2609 #2179, KP #722, and aiokafka",
        "commits only what a later poll has shown to be processed",
        (
            (_DELIVERY, "test_a_crash_while_processing_loses_no_record"),
            ("tests/consumer/test_delivery.py", "test_an_exception_commits_only_what_a_later_poll_proved"),
        ),
    ),
    Weakness(
        "a full queue stops fetching for a second",
        "RDK #3662 #2879 #1377 #3553 #4284",
        "fetching continues as soon as there is room",
        ((_FETCHING, "test_a_full_buffer_costs_no_second"),),
    ),
    Weakness(
        "plain Python is slow, above all for checksums",
        "KP #1888 #290 #1597, CK #1853",
        "decoding and checksums are compiled; [benchmarks](benchmarks.md)",
        (
            (_FETCHING, "test_checking_the_checksum_costs_little_as_installed"),
            (_FETCHING, "test_bytes_are_copied_once_on_their_way_to_the_record"),
        ),
    ),
    Weakness(
        "prefetching uses too much memory",
        "RDK #2516 #2853 #4137 #1775, CK #759, KP #1508 #2437, AIO #628",
        "`buffer.memory` limits all bytes held; a single batch may exceed it",
        (("tests/consumer/test_memory.py", "test_a3_a_gibibyte_goes_through_32_mebibytes"),),
    ),
    Weakness(
        "a cancelled await loses a record and commits it",
        "CK #185 #1017 #1723",
        "no record is lost",
        (
            (_ASYNC, "test_a_cancelled_poll_loses_no_record"),
            (
                "tests/consumer/test_async.py",
                "test_c7_a_cancelled_poll_loses_no_record_and_commits_nothing_unseen",
            ),
        ),
    ),
    Weakness(
        "a cancellation is swallowed and the task goes on",
        "AIO #983 #1007",
        "CancelledError always reaches the task",
        ((_ASYNC, "test_a_cancellation_is_never_swallowed"),),
    ),
    Weakness(
        "a batch call waits for n records or the whole timeout",
        "CK #407 #2205 #1076",
        "a poll returns as soon as there are records",
        ((_WAITING, "test_a_poll_returns_with_what_there_is"),),
    ),
    Weakness(
        "a waiting call cannot be interrupted",
        "CK #209 #807 #1321, RDK #2423",
        "Ctrl-C, `wakeup()` and `close()` from another thread end it, and no record is lost",
        (
            (_WAITING, "test_ctrl_c_ends_every_way_of_waiting"),
            ("tests/consumer/test_deadlines.py", "test_c7_ctrl_c_ends_every_call_that_waits"),
            (
                "tests/consumer/application/test_interrupted.py",
                "test_c7_ctrl_c_anywhere_in_a_poll_loses_no_record",
            ),
            ("tests/consumer/test_threads.py", "test_c7_wakeup_ends_a_poll_and_the_next_one_works"),
            ("tests/consumer/test_threads.py", "test_c7_close_from_another_thread_ends_a_poll"),
        ),
    ),
    Weakness(
        "KIP-848 is missing, or opt-in with conflicts of keys",
        "KP #3000, RDK #5541 #5488 #5604",
        "used by default if the broker has it; keys that it ignores are refused with advice",
        (
            (_GROUP, "test_a_key_that_the_protocol_ignores_is_refused_with_advice"),
            ("tests/consumer/test_group.py", "test_c4_auto_takes_what_the_broker_has_and_loses_nothing"),
        ),
    ),
    Weakness(
        "close() hangs, has no timeout, or leaves a dead member in the group",
        "CK #1667 #1573 #107, RDK #1002 #1376, KP #2564",
        "it ends in its time, may be called twice, and leaves the group at once",
        (
            (_WAITING, "test_close_ends_in_its_time_and_may_be_called_again"),
            ("tests/consumer/test_threads.py", "test_b7_close_never_hangs_on_a_silent_coordinator"),
            ("tests/consumer/test_group.py", "test_b7_close_leaves_the_group_at_once"),
        ),
    ),
    Weakness(
        "cooperative rebalancing is late, missing, or stops the records",
        "KP #2143, CK #894, and aiokafka",
        "records of partitions that stay keep coming",
        (
            (
                "tests/consumer/test_group.py",
                "test_c5_partitions_that_stay_keep_flowing_while_another_member_joins",
            ),
            (
                "tests/consumer/test_group_busy.py",
                "test_c5_a_join_waits_for_no_stuck_member",
            ),
        ),
    ),
    Weakness(
        "after an eager rebalance kept partitions continue at the old position",
        "kafka-python",
        "they restart at the committed offset, as with Java's client",
        (
            (
                "tests/consumer/test_group_busy.py",
                "test_peer_bug_4_after_an_eager_rebalance_kept_partitions_restart_at_the_committed_offset",
            ),
        ),
    ),
    Weakness(
        "after a fork poll() hangs, or never returns records",
        "CK #351 #612, KP #1866 #1687 #1515 #1867",
        "calls in the child raise `ForkedError`; a consumer made in the child works",
        (
            (_PROCESSES, "test_a_child_is_told_and_its_own_consumer_works"),
            ("tests/consumer/test_threads.py", "test_c8_a_child_is_refused_and_hangs_nowhere"),
        ),
    ),
    Weakness(
        "calls of a second thread race with a poll, or wait for it",
        "CK #460, KP #1105",
        "they raise at once; `pause`, `resume`, `wakeup`, `metrics` and `close` may be called from every thread",
        (
            (_WAITING, "test_a_call_from_a_second_thread_does_not_wait_for_the_poll_of_the_first"),
            ("tests/consumer/test_threads.py", "test_c7_a_second_thread_is_told_at_once"),
        ),
    ),
    Weakness(
        "pauses are lost in a rebalance, paused data is fetched again",
        "CK #120 #371, KP #872",
        "pauses and buffered records are kept",
        (
            (
                "tests/consumer/test_group_busy.py",
                "test_pain_17_a_pause_and_what_was_fetched_survive_a_cooperative_rebalance",
            ),
            (_DELIVERY, "test_pausing_keeps_what_is_buffered_and_fetches_it_once"),
        ),
    ),
    Weakness(
        "no usable lag and rates",
        "AIO #1177 #38 #562",
        "`metrics()` under Kafka's names, `current_lag()`; neither sends a request",
        ((_FETCHING, "test_lag_and_rates_are_numbers_and_cost_no_request"),),
    ),
    Weakness(
        "polls and heartbeats block each other",
        "KP #1626 #1985 #2077 #1671 #1461",
        "neither thread holds a lock while it waits",
        ((_WAITING, "test_threads_that_pause_wake_and_measure_while_a_group_rebalances_never_lock_up"),),
    ),
    Weakness(
        "a record that cannot be decoded is raised for ever",
        "CK #1572, and kafka-python, aiokafka",
        "the error names the record, and you can seek past it; or it is skipped, or written to a dead letter topic",
        ((_DELIVERY, "test_a_poison_pill_never_blocks_the_records_behind_it"),),
    ),
    Weakness(
        "a record above the limit is skipped",
        "aiokafka",
        "it is read (KIP-74)",
        ((_DELIVERY, "test_a_record_above_the_limit_is_read_and_not_skipped"),),
    ),
    Weakness(
        "callbacks of commits run newest first",
        "kafka-python",
        "they run oldest first",
        ((_DELIVERY, "test_callbacks_of_commits_run_oldest_first"),),
    ),
    Weakness(
        "an async commit without a known coordinator reports the result of the look-up",
        "kafka-python",
        "it reports its own result",
        ((_DELIVERY, "test_an_async_commit_without_a_known_coordinator_is_the_commits_own_result"),),
    ),
    Weakness(
        "the leader epoch of a committed offset is dropped",
        "kafka-python",
        "kept, so truncation is noticed (KIP-320)",
        ((_DELIVERY, "test_the_leader_epoch_of_a_committed_offset_survives_a_restart"),),
    ),
    Weakness(
        "exceptions of a rebalance listener are only logged",
        "aiokafka",
        "raised by poll(); the group goes on",
        (
            (
                "tests/consumer/test_group.py",
                "test_an_exception_in_a_callback_surfaces_from_poll_and_the_group_goes_on",
            ),
        ),
    ),
    Weakness(
        "a poll sleeps past its timeout while a coordinator is looked up",
        "kafka-python",
        "it ends at its deadline",
        ((_WAITING, "test_a_poll_ends_in_time_though_the_next_try_is_far_off"),),
    ),
    Weakness(
        "each poll leaves a callback or timer behind; with several brokers it uses a whole processor",
        "KP #3077 #3084",
        "nothing accumulates, and an idle consumer sleeps",
        (
            (_WAITING, "test_polls_while_a_join_takes_its_time_leave_nothing_behind"),
            (_WAITING, "test_an_idle_consumer_of_several_brokers_sleeps"),
        ),
    ),
    Weakness(
        "the sticky assignor never ends",
        "KP #3164",
        "each chain of moves makes the assignment more even, so it ends",
        (
            (
                "tests/consumer/assignors/test_sticky.py",
                "test_each_chain_of_moves_makes_it_more_even_so_balancing_ends",
            ),
        ),
    ),
    Weakness(
        "errors of connecting are unclear",
        "KP #2348 #2671 #1440, CK #552",
        "one error has address, step and cause",
        ((_WAITING, "test_a_cluster_that_is_not_there_is_an_error_that_names_address_and_cause"),),
    ),
)


def table() -> str:
    """The weaknesses as Markdown."""
    lines = ["| what hurts | seen in | Kadence | shown by |", "|---|---|---|---|"]
    for each in WEAKNESSES:
        tests = "<br>".join(f"[`{name}`](../{path})" for path, name in each.tests)
        lines.append(f"| {each.hurts} | {each.seen} | {each.here} | {tests} |")
    return "\n".join(lines)
