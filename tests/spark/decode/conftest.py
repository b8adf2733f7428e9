from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.decode.registry_server import RegistryServer, running

from kadence.spark.decode import formats


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    formats.registered.cache_clear()
    formats.decoder_of.cache_clear()
    with running() as server:
        yield server
