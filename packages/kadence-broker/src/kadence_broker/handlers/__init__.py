"""One file per API key, named after it, with ``HANDLER``; `by_coordinator` has those that need none of their own.

`HANDLERS` is what the broker serves.
"""

from __future__ import annotations

from typing import Final

from kadence_broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k16_list_groups,
    k17_sasl_handshake,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
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
    k46_list_partition_reassignments,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
)
from kadence_broker.handlers.by_coordinator import BY_COORDINATOR
from kadence_broker.handlers.k18_api_versions import make_handler, offer
from kadence_broker.service import Handler

__all__ = ["HANDLERS", "offer"]

_ALL = [
    *BY_COORDINATOR,
    *(
        module.HANDLER
        for module in (
            k00_produce,
            k01_fetch,
            k02_list_offsets,
            k03_metadata,
            k08_offset_commit,
            k09_offset_fetch,
            k10_find_coordinator,
            k16_list_groups,
            k17_sasl_handshake,
            k19_create_topics,
            k20_delete_topics,
            k21_delete_records,
            k23_offset_for_leader_epoch,
            k24_add_partitions_to_txn,
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
            k46_list_partition_reassignments,
            k60_describe_cluster,
            k61_describe_producers,
            k65_describe_transactions,
            k66_list_transactions,
            k74_list_config_resources,
            k75_describe_topic_partitions,
            k78_share_fetch,
            k79_share_acknowledge,
            k90_describe_share_group_offsets,
        )
    ),
]

HANDLERS: Final[dict[int, Handler]] = {each.api_key: each for each in [*_ALL, make_handler(_ALL)]}
"""By API key."""
