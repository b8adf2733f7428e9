"""kcat, the command-line client that others reach for first, against our broker."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from kadence_broker import Broker


@pytest.fixture(scope="module")
def kcat() -> str:
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        pytest.skip("NOT TESTED with kcat, which is not here: apt-get install kcat")
    return found


def test_kcat_lists_produces_and_consumes_in_a_group(broker: Broker, kcat: str) -> None:
    def run(*arguments: str, stdin: str = "") -> str:
        command = [kcat, "-b", broker.bootstrap_servers, *arguments]
        return subprocess.run(
            command, input=stdin, stdout=subprocess.PIPE, text=True, timeout=60, check=True
        ).stdout

    lines = [f"k{number}:v{number}" for number in range(20)]
    run("-P", "-t", "t", "-K:", "-z", "zstd", stdin="\n".join(lines) + "\n")
    assert sum(end for _, end in broker.offsets("t")) == 20

    told = json.loads(run("-L", "-J"))
    assert {each["id"] for each in told["brokers"]} == {1, 2, 3}
    partitions = {each["topic"]: len(each["partitions"]) for each in told["topics"]}
    assert partitions["t"] == 4

    read = run("-G", "g", "-c", "20", "-q", "-K:", "-X", "auto.offset.reset=earliest", "t")
    assert sorted(read.splitlines()) == sorted(lines)
    assert "Empty" in broker.describe_groups()["g"]
    again = run("-C", "-t", "t", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert sorted(again.splitlines()) == sorted(lines)
