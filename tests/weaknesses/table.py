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
        "long or CPU-bound work costs the membership",
        "KP #2422 #1491 #2070, AIO #335 #406 #700, CK #552 #629, RDK #2971 #3732",
        "a network thread of its own keeps it; a loop that is too slow is reported before it is too late",
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
        "`not_fetched()` has the one reason for each partition",
        (
            (_FETCHING, "test_a_partition_that_is_not_fetched_says_why"),
            (_FETCHING, "test_an_error_of_a_fetch_is_waited_out_and_nothing_is_skipped"),
        ),
    ),
    Weakness(
        "partitions stall after a leader change, or after a listener has run",
        "KP #3106 #3132",
        "every state of a partition has a way out and a deadline",
        (
            (_FETCHING, "test_no_partition_stalls_when_leaders_move_and_answers_are_lost"),
            (_GROUP, "test_a_listener_that_seeks_leaves_no_partition_stuck"),
        ),
    ),
    Weakness(
        "rebalances for nothing",
        "RDK #4742 #3306 #3891, CK #1090 #559, AIO #108, KP #2605",
        "a member joins again only for what its assignor uses; once, however many assignors it has",
        (
            (_GROUP, "test_leaders_that_move_make_nobody_rejoin"),
            (_GROUP, "test_two_assignors_join_once"),
        ),
    ),
    Weakness(
        "no safe moment to commit in a rebalance",
        "KP #746 #1716 #2614, AIO #929 #933",
        "listeners run on your thread, before partitions go, and may commit",
        (
            (_GROUP, "test_positions_and_commits_work_while_partitions_are_taken_away"),
            ("tests/consumer/test_group.py", "test_callbacks_run_on_the_polling_thread_and_may_commit"),
        ),
    ),
    Weakness(
        "the default auto-commit loses the records of a crash",
        "RDK #1122 #2609 #2179, KP #722, and aiokafka",
        "only what a later poll proves processed is committed",
        (
            (_DELIVERY, "test_a_crash_while_processing_loses_no_record"),
            ("tests/consumer/test_delivery.py", "test_an_exception_commits_only_what_a_later_poll_proved"),
        ),
    ),
    Weakness(
        "a full queue stops fetching for a second",
        "RDK #3662 #2879 #1377 #3553 #4284",
        "fetching goes on as soon as there is room",
        ((_FETCHING, "test_a_full_buffer_costs_no_second"),),
    ),
    Weakness(
        "slow in plain Python; checksums most of all",
        "KP #1888 #290 #1597, CK #1853",
        "compiled decoding and checksums as installed; [benchmarks](benchmarks.md)",
        (
            (_FETCHING, "test_checking_the_checksum_costs_little_as_installed"),
            (_FETCHING, "test_bytes_are_copied_once_on_their_way_to_the_record"),
        ),
    ),
    Weakness(
        "prefetching eats the memory",
        "RDK #2516 #2853 #4137 #1775, CK #759, KP #1508 #2437, AIO #628",
        "`buffer.memory` is a hard cap on all that is held",
        (("tests/consumer/test_memory.py", "test_a3_a_gibibyte_goes_through_32_mebibytes"),),
    ),
    Weakness(
        "a cancelled await loses a record and commits it",
        "CK #185 #1017 #1723",
        "cancelling loses nothing",
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
        "CancelledError always comes through",
        ((_ASYNC, "test_a_cancellation_is_never_swallowed"),),
    ),
    Weakness(
        "a batch call waits for n records or the whole timeout",
        "CK #407 #2205 #1076",
        "a poll returns with the first that are there",
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
        "taken by default where the broker has it; keys it ignores are refused with advice",
        (
            (_GROUP, "test_a_key_that_the_protocol_ignores_is_refused_with_advice"),
            ("tests/consumer/test_group.py", "test_c4_auto_takes_what_the_broker_has_and_loses_nothing"),
        ),
    ),
    Weakness(
        "close() hangs, has no timeout, or leaves a ghost in the group",
        "CK #1667 #1573 #107, RDK #1002 #1376, KP #2564",
        "bounded, idempotent, and the group is left at once",
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
        "after an eager rebalance kept partitions go on from memory",
        "kafka-python",
        "they restart where the group committed, as Java's do",
        (
            (
                "tests/consumer/test_group_busy.py",
                "test_peer_bug_4_after_an_eager_rebalance_kept_partitions_restart_at_the_committed_offset",
            ),
        ),
    ),
    Weakness(
        "after a fork poll() hangs, or returns nothing for ever",
        "CK #351 #612, KP #1866 #1687 #1515 #1867",
        "the child is told (`ForkedError`); a consumer of its own works",
        (
            (_PROCESSES, "test_a_child_is_told_and_its_own_consumer_works"),
            ("tests/consumer/test_threads.py", "test_c8_a_child_is_refused_and_hangs_nowhere"),
        ),
    ),
    Weakness(
        "calls of a second thread race, or wait for a poll",
        "CK #460, KP #1105",
        "refused at once; `pause`, `resume`, `wakeup`, `metrics` and `close` are for every thread",
        (
            (_WAITING, "test_a_call_from_a_second_thread_does_not_wait_for_the_poll_of_the_first"),
            ("tests/consumer/test_threads.py", "test_c7_a_second_thread_is_told_at_once"),
        ),
    ),
    Weakness(
        "pauses are lost in a rebalance, paused data is fetched again",
        "CK #120 #371, KP #872",
        "pauses and buffers stay",
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
        "polls and heartbeats lock each other up",
        "KP #1626 #1985 #2077 #1671 #1461",
        "the two threads share no lock that is held while waiting",
        ((_WAITING, "test_threads_that_pause_wake_and_measure_while_a_group_rebalances_never_lock_up"),),
    ),
    Weakness(
        "a poison pill is raised for ever",
        "CK #1572, and kafka-python, aiokafka",
        "raise with its place, skip, or write it to a dead letter topic",
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
        "oldest first",
        ((_DELIVERY, "test_callbacks_of_commits_run_oldest_first"),),
    ),
    Weakness(
        "an async commit without a known coordinator reports the look-up instead",
        "kafka-python",
        "its own result",
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
        "a poll with a timeout sleeps through it while a coordinator is looked up",
        "kafka-python",
        "the deadline holds",
        ((_WAITING, "test_a_poll_ends_in_time_though_the_next_try_is_far_off"),),
    ),
    Weakness(
        "each poll leaves a callback or a timer behind; several brokers make it spin",
        "KP #3077 #3084",
        "nothing grows; an idle consumer sleeps",
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
        "errors of connecting say little",
        "KP #2348 #2671 #1440, CK #552",
        "one error with address, step and cause",
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
