"""Share groups (KIP-932), the groups of queues: the messages and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kadence.admin.arguments import as_names
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.groups import MemberDescription, assigned_to, by_coordinator, deleted
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol.share_group_describe import DescribedGroup, ShareGroupDescribeRequest

__all__ = ["ShareGroupDescription", "delete_share_groups", "describe_share_groups"]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group as its coordinator knows it. Several members may have the same partition.

    Attributes:
        state: "Empty" or "Stable". assignor: the name of the assignor in use.
        epoch: rises when members, subscriptions or partitions change.
    """

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int

    @property
    def group_type(self) -> str:
        """The type: "share"."""
        return "share"


@operation
def describe_share_groups(
    calls: Calls, deadline: int, groups: str | Iterable[str]
) -> Waits[Outcomes[str, ShareGroupDescription]]:
    """State, members and assignment of share groups (KIP-932).

    Brokers do not say which records a member holds.

    Raises:
        BrokerError: GROUP_ID_NOT_FOUND: there is no such group, or it is of another type.
        UnsupportedVersionError: the brokers are older than Kafka 4.1.
    """

    def attempt(
        groups: Collection[str], deadline: int
    ) -> Waits[dict[str, ShareGroupDescription | KafkaError]]:
        result: dict[str, ShareGroupDescription | KafkaError] = {}
        by_node = yield from by_coordinator(calls, groups, deadline, result)
        asks = [Ask(ShareGroupDescribeRequest(group_ids=names), node) for node, names in by_node.items()]
        answers = yield from calls.ask_all(asks, deadline)
        for (node, names), answer in zip(by_node.items(), answers, strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(names, answer))
            else:
                result.update({each.group_id: _described(node, each) for each in answer.groups})
        return result

    return calls.settle(as_names(groups), attempt, deadline)


def _described(node: int, group: DescribedGroup) -> ShareGroupDescription | KafkaError:
    if group.error_code:
        return refusal(group.error_code, f"group {group.group_id!r}", group.error_message)
    members = tuple(
        MemberDescription(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            assigned_to(member.assignment),
            member_epoch=member.member_epoch,
            subscription=frozenset(member.subscribed_topic_names),
        )
        for member in group.members
    )
    return ShareGroupDescription(
        group.group_id, group.group_state, group.assignor_name, node, members, group.group_epoch
    )


@operation
def delete_share_groups(
    calls: Calls, deadline: int, groups: str | Iterable[str]
) -> Waits[Outcomes[str, None]]:
    """Delete share groups, their offsets and delivery counts. A group that has members is refused.

    The settings of a group stay. If an answer is lost and the group is not there, it counts as deleted.
    """
    return deleted(calls, deadline, as_names(groups))
