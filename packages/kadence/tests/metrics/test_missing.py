"""What is said where a library of an extra is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("library", "statement", "extra"),
    [
        ("prometheus_client", "import kadence.metrics.prometheus", "prometheus"),
        ("opentelemetry", "import kadence.metrics.otel", "otel"),
        (
            "gssapi",
            "import kadence.net.kerberos as k, kadence.security as c; k.contexts(c.Kerberos('x'))",
            "gssapi",
        ),
    ],
)
def test_the_error_names_the_extra(library: str, statement: str, extra: str) -> None:
    program = f"""
import sys
sys.modules[{library!r}] = None
from kadence.errors import MissingDependencyError
try:
    {statement}
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"pip install 'kadence[{extra}]'" in done.stdout
