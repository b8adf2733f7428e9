"""One file per API key, named after it. Each has ``HANDLER``; `HANDLERS` is what the broker serves."""

from __future__ import annotations

from typing import Final

from kadence.broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k17_sasl_handshake,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k36_sasl_authenticate,
    k37_create_partitions,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k47_offset_delete,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from kadence.broker.handlers.k18_api_versions import make_handler, offer
from kadence.broker.service import Handler

__all__ = ["HANDLERS", "offer"]

_ALL = [
    module.HANDLER
    for module in (
        k00_produce,
        k01_fetch,
        k02_list_offsets,
        k03_metadata,
        k08_offset_commit,
        k09_offset_fetch,
        k10_find_coordinator,
        k11_join_group,
        k12_heartbeat,
        k13_leave_group,
        k14_sync_group,
        k15_describe_groups,
        k16_list_groups,
        k17_sasl_handshake,
        k19_create_topics,
        k20_delete_topics,
        k21_delete_records,
        k22_init_producer_id,
        k23_offset_for_leader_epoch,
        k24_add_partitions_to_txn,
        k25_add_offsets_to_txn,
        k26_end_txn,
        k27_write_txn_markers,
        k28_txn_offset_commit,
        k29_describe_acls,
        k30_create_acls,
        k31_delete_acls,
        k32_describe_configs,
        k33_alter_configs,
        k35_describe_log_dirs,
        k36_sasl_authenticate,
        k37_create_partitions,
        k42_delete_groups,
        k43_elect_leaders,
        k44_incremental_alter_configs,
        k47_offset_delete,
        k60_describe_cluster,
        k61_describe_producers,
        k65_describe_transactions,
        k66_list_transactions,
        k68_consumer_group_heartbeat,
        k69_consumer_group_describe,
        k74_list_config_resources,
        k75_describe_topic_partitions,
    )
]

HANDLERS: Final[dict[int, Handler]] = {each.api_key: each for each in [*_ALL, make_handler(_ALL)]}
"""By API key."""
