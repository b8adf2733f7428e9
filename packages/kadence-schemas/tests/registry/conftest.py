from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.registry.registry_server import RegistryServer, running


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with running() as server:
        yield server
