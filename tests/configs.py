"""How tests change the settings of topics and groups of real Kafka."""

from __future__ import annotations

from collections.abc import Mapping

from tests.patience import until

from kadence import Admin
from kadence.admin import ConfigResource

__all__ = ["set_configs"]


def set_configs(admin: Admin, resource: ConfigResource, configs: Mapping[str, str]) -> None:
    """Set them, and wait until the broker has them: Kafka's controller answers before that."""
    admin.incremental_alter_configs({resource: configs})

    def has_them() -> bool:
        described = admin.describe_configs(resource)[resource]
        return all(described[key].value == value for key, value in configs.items())

    until(has_them, what=f"the broker does not have {dict(configs)}")
