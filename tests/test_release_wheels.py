"""The wheels of a release, as cibuildwheel reads the configuration of packages/kadence/pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from layout import CLIENT, ROOT

pytest.importorskip("cibuildwheel", reason="make .venv/.has-package installs cibuildwheel")

PYTHONS: Final = ("cp311", "cp312", "cp313", "cp314", "cp314t")


def identifiers(platform: str) -> set[str]:
    """The builds of a system. cibuildwheel answers from its own files, without a network."""
    done = subprocess.run(
        (sys.executable, "-m", "cibuildwheel", "--platform", platform, "--print-build-identifiers", CLIENT),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("platform", "systems"),
    [
        (
            "linux",
            ("manylinux_x86_64", "manylinux_aarch64", "musllinux_x86_64", "musllinux_aarch64"),
        ),
        ("macos", ("macosx_x86_64", "macosx_arm64")),
        ("windows", ("win_amd64", "win_arm64")),
    ],
)
def test_a_release_has_a_wheel_for_each_python_on_each_system(
    platform: str, systems: tuple[str, ...]
) -> None:
    assert identifiers(platform) == {f"{python}-{system}" for python in PYTHONS for system in systems}
