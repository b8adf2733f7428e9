#!/usr/bin/env bash
# pytest 9.2.0 with pytest-xdist 3.8.0: the mark xdist_group has no effect, and nothing says so.
#
# Guess: with --dist loadgroup all tests of one group run in one worker, as pytest-xdist documents it.
# Seen: they are spread over both workers. pytest-xdist writes the group into item._nodeid; pytest 9.2 makes nodeid from
#       another field, so the scheduler never sees the group. With pytest 9.0.2 they share a worker.
# Who meets it: a suite that shares an expensive fixture (a JVM, a database) by a group starts one in each worker.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   pytest 9.0.2, pytest-xdist 3.8.0: the group ran in 1 worker(s)
#   pytest 9.2.0, pytest-xdist 3.8.0: the group ran in 2 worker(s)
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for file in a b c d; do
    cat >"test_$file.py" <<'PY'
import os
import pathlib
import time

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(5))
def test_it(number):
    with pathlib.Path(os.environ["SEEN"]).open("a") as seen:
        seen.write(os.environ["PYTEST_XDIST_WORKER"] + "\n")
    time.sleep(0.05)
PY
done

workers() {
    python3 -m venv "venv-$1"
    "venv-$1/bin/pip" install -q --disable-pip-version-check "pytest==$1" pytest-xdist==3.8.0 || exit 2
    SEEN="$work/seen-$1" "venv-$1/bin/python" -m pytest -q -n 2 --dist loadgroup >"out-$1"
    grep -q "20 passed" "out-$1"
    found=$(sort -u "seen-$1" | wc -l)
    echo "pytest $1, pytest-xdist 3.8.0: the group ran in $found worker(s)"
}

workers 9.0.2
[ "$found" = 1 ] || { echo "changed: the group was spread with pytest 9.0.2" >&2; exit 1; }
workers 9.2.0
[ "$found" = 2 ] || { echo "changed: the group runs in one worker with pytest 9.2.0" >&2; exit 1; }
