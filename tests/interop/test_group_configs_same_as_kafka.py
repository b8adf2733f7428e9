"""Settings of single groups, asked of our broker and of real Apache Kafka: answers and words of errors must agree."""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import uuid4

import pytest
from conftest import FAST_GROUPS
from tests.broker.wire import Wire
from tests.patience import PATIENCE

from kadence.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.incremental_alter_configs import AlterableConfig as Edit
from kadence.protocol.incremental_alter_configs import AlterConfigsResource as Edited
from kadence.protocol.incremental_alter_configs import IncrementalAlterConfigsRequest
from kadence.protocol.list_config_resources import ListConfigResourcesRequest
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

GROUP = 32
SET, DELETE, APPEND = 0, 1, 2
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


_BOUND = re.compile(
    r"(\S+) must be (?:(?:greater|less) than or equal to \S+|in the range \d+ to \d+ inclusive\.)"
)


def words(message: str | None) -> str | None:
    """The message of a refusal. Kafka 4.4 names a setting's bounds in other words than 4.3: both are one here."""
    return _BOUND.sub(r"\1 is out of bounds", message) if message else None


class Groups:
    """One side of the comparison; ``g`` is a group that nobody else names."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.g = f"same-{uuid4()}"

    def edit(
        self, *edits: tuple[str, int, str | None], group: str | None = None, validate_only: bool = False
    ) -> Any:
        configs = [Edit(name=name, config_operation=what, value=value) for name, what, value in edits]
        name = self.g if group is None else group
        request = IncrementalAlterConfigsRequest(
            resources=[Edited(resource_type=GROUP, resource_name=name, configs=configs)],
            validate_only=validate_only,
        )
        (answer,) = self.wire.call(request).responses
        return answer.error_code, words(answer.error_message)

    def replace(self, *configs: tuple[str, str | None]) -> Any:
        entries = [AlterableConfig(name=name, value=value) for name, value in configs]
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=self.g, configs=entries)
        (answer,) = self.wire.call(AlterConfigsRequest(resources=[resource])).responses
        return answer.error_code, words(answer.error_message)

    def described(self, group: str | None = None) -> Any:
        asked = DescribeConfigsResource(
            resource_type=GROUP,
            resource_name=self.g if group is None else group,
            configuration_keys=[SESSION, HEARTBEAT, ASSIGNMENT],
        )
        (result,) = self.wire.call(DescribeConfigsRequest(resources=[asked], include_synonyms=True)).results
        return (
            result.error_code,
            result.error_message or None,
            sorted(
                (
                    each.name,
                    each.value,
                    each.config_source,
                    each.read_only,
                    each.config_type,
                    tuple((synonym.name, synonym.value, synonym.source) for synonym in each.synonyms),
                )
                for each in result.configs
            ),
        )

    def described_with(self, session: str) -> Any:
        """Real Kafka answers a change before it has taken it in."""
        deadline = time.monotonic() + PATIENCE
        while True:
            told = self.described()
            if any(each[:2] == (SESSION, session) for each in told[2]):
                return told
            assert time.monotonic() < deadline, told

    def is_listed(self, *, wanted: bool) -> bool:
        """Real Kafka lists it soon after it describes it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.wire.call(ListConfigResourcesRequest(resource_types=[GROUP])).config_resources
            if wanted == ((GROUP, self.g) in [(each.resource_type, each.resource_name) for each in found]):
                return wanted
            assert time.monotonic() < deadline, found


def changes(groups: Groups) -> list[Any]:
    """What may be, and what it leaves to be described and listed."""
    return [
        groups.described(),
        groups.is_listed(wanted=False),
        groups.edit((SESSION, SET, "31000"), validate_only=True),
        groups.edit((SESSION, SET, "30000")),
        groups.described_with("30000"),
        groups.is_listed(wanted=True),
        groups.edit((HEARTBEAT, SET, "500"), (ASSIGNMENT, SET, "7"), (SESSION, SET, "600")),
        groups.described_with("600"),
        groups.edit((ASSIGNMENT, DELETE, None), ("nonsense", DELETE, None), (SESSION, SET, "601")),
        groups.described_with("601"),
        groups.replace((SESSION, "32000")),
        groups.described_with("32000"),
        groups.replace(),
        groups.described_with("45000"),
        groups.is_listed(wanted=False),
    ]


def refusals(groups: Groups) -> list[Any]:
    """What may not be, and why. The last change shows that none of it was taken."""
    wrong = [
        *((SESSION, value) for value in ("x", "", "-1", "0", "1", "1.5", "99999999", "3000000000")),
        *((HEARTBEAT, value) for value in ("x", "0", "50", "30000")),
        *((ASSIGNMENT, value) for value in ("x", "-1", "99999999")),
        ("nonsense", "1"),
    ]
    return [
        *(groups.edit((name, SET, value)) for name, value in wrong),
        *(groups.replace((name, value)) for name, value in wrong),
        groups.edit((SESSION, SET, "500"), (HEARTBEAT, SET, "500")),
        groups.edit((SESSION, SET, None)),
        groups.edit((SESSION, SET, None), (HEARTBEAT, APPEND, None), ("nonsense", DELETE, None)),
        groups.edit((SESSION, 9, "30000")),
        groups.edit(("nonsense", SET, "1"), (SESSION, 9, "30000")),
        groups.replace((SESSION, None)),
        groups.edit((SESSION, APPEND, "1")),
        groups.edit((SESSION, SET, "30000"), (SESSION, SET, "30000")),
        groups.edit((SESSION, SET, "30000"), group=""),
        groups.described(""),
        groups.edit((ASSIGNMENT, SET, "9"), (SESSION, SET, "33000")),
        groups.described_with("33000"),
        # Leave nothing behind in a broker that others use.
        groups.replace(),
    ]


@pytest.mark.kafka
@pytest.mark.parametrize("scenario", [changes, refusals])
def test_a_groups_settings(kafka: Kafka, scenario: Any) -> None:
    with (
        Broker(config=FAST_GROUPS) as broker,
        Wire(broker) as ours,
        Wire(kafka.bootstrap_servers) as real,
    ):
        assert scenario(Groups(ours)) == scenario(Groups(real))
