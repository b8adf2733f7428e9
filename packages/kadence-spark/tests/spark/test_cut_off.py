"""A test that runs out of its time in a call of Java takes Spark with it, and the tests after it have another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.own_spark, pytest.mark.heavy]

ROOT = Path(__file__).parents[4]

TESTS = """
import pytest
from tests.patience import until
from tests.spark.conftest import _shared, pytest_runtest_makereport, spark


@pytest.mark.timeout(2, func_only=True)
def test_that_does_not_end(spark):
    seconds = spark.sparkContext._jvm.java.util.concurrent.TimeUnit.SECONDS
    seconds.sleep(600)


@pytest.mark.parametrize("number", [3, 4])
def test_after_it(spark, number):
    assert spark.range(number).count() == number
"""


def test_the_tests_after_it_have_another_spark(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    head, _, rest = TESTS.partition("@pytest.mark.timeout")
    pytester.makeconftest(head)
    pytester.makepyfile(f"import pytest\n\n\n@pytest.mark.timeout{rest}")
    pytester.makeini("[pytest]\nfaulthandler_timeout = 280\n")
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    ran.assert_outcomes(passed=2, failed=1)
    ran.stdout.fnmatch_lines(["*Timeout (>2*"])
