"""`make bench-spark` without Spark: work that fails, and a worker that ends, are done again and told."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"

WORKER: Final = """
import sys
from pathlib import Path
print("[]", flush=True)
for line in sys.stdin:
    topic, case = line.split()
    tries = Path(__file__).with_name(case)
    tries.touch()
    tries.write_text(tries.read_text() + "x")
    if case == "ends" and tries.read_text() == "x":
        sys.exit(3)
    print("[]" if case == "fails" else "[1.5]", flush=True)
"""


@pytest.fixture
def _bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are programs, and no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.mark.usefixtures("_bench_on_path")
def test_a_run_that_fails_or_whose_worker_ends_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spark

    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "spark_worker.py").write_text(WORKER)
    monkeypatch.setattr(spark, "ROOT", tmp_path)
    worker = spark.Worker(Path(sys.executable), {"format": "kafka"})
    failures: Counter[str] = Counter()
    assert spark._done(worker, "topic", "works", "works", failures) == [1.5]
    assert spark._done(worker, "topic", "ends", "ends", failures) == [1.5]
    assert spark._done(worker, "topic", "fails", "fails", failures) == []
    assert failures == {"ends": 1, "fails": spark.ATTEMPTS}
    worker.close()
