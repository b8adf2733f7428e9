from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.decode.registry_server import RegistryServer, running

from kadence.spark.decode import formats
from kadence.spark.decode.registry import Schemas


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(formats, "_SCHEMAS", Schemas(sleep=lambda _: None))
    formats.decoder_of.cache_clear()
    with running() as server:
        yield server
