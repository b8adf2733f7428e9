"""`make kill-work` and `make kill-queue`, with a few kills, and `make attack-work`, with a few stories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[4] / "tools" / "kill_work.py"
QUEUE = TOOL.with_name("kill_queue.py")
ATTACK = TOOL.with_name("attack_work.py")


@pytest.mark.heavy
def test_kills_lose_no_record_and_keep_the_order_of_keys() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--rounds", "3"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "records: 0 not handled, 0 before one of their key" in done.stdout


@pytest.mark.heavy
def test_kills_lose_no_output_and_repeat_none() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--rounds", "3", "--sink", "topic"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "outputs: 0 lost, 0 twice, 0 keys out of order" in done.stdout


@pytest.mark.heavy
def test_kills_lose_no_record_of_a_queue() -> None:
    done = subprocess.run(
        [sys.executable, QUEUE, "--rounds", "3"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "records: 0 not handled" in done.stdout


@pytest.mark.heavy
def test_no_story_of_a_real_cluster_breaks_a_rule() -> None:
    done = subprocess.run(
        [sys.executable, ATTACK, "--seeds", "20"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 seeds, 0 failed" in done.stdout
