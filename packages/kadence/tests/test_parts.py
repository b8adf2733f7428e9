"""The other packages: loaded when they are used, and one sentence where they are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kadence.errors import MissingDependencyError
from kadence.parts import EXTRAS, missing, part

WITHOUT = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("kadence_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""
"""As after ``pip install kadence`` alone."""


ERROR = "kadence.errors.MissingDependencyError"


def ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=False)


def test_a_part_is_loaded_by_its_name() -> None:
    assert part("kadence_broker").Broker is part("kadence").Broker


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from kadence import Broker", "kadence_broker"),
        ("import kadence; kadence.Broker", "kadence_broker"),
    ],
)
def test_a_missing_part_is_one_sentence(code: str, name: str) -> None:
    said = ran(code).stderr.splitlines()[-1]
    assert said == f"{ERROR}: {name} is not installed: pip install 'kadence[{EXTRAS[name]}]'"


def test_a_reading_says_which_format_needs_it() -> None:
    code = "import kadence; kadence.read('t', value='avro', schema_registry_url='http://127.0.0.1:1')"
    said = ran(code).stderr.splitlines()[-1]
    assert said == f"{ERROR}: kadence_schemas is not installed: pip install 'kadence[avro]'"


def test_the_command_line_is_missing() -> None:
    done = ran("import runpy; runpy.run_module('kadence', run_name='__main__')")
    assert (done.returncode, done.stderr) == (
        1,
        "kadence_cli is not installed: pip install 'kadence[cli]'\n",
    )


def test_a_consumer_needs_none_of_them() -> None:
    made = "Consumer(bootstrap_servers='127.0.0.1:1').close(timeout=0)"
    done = ran(f"from kadence import Admin, Consumer, Producer, read; {made}")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_part_lacks_itself_is_another_matter() -> None:
    assert missing(ModuleNotFoundError("No module named 'numpy'", name="numpy")) is None
    with pytest.raises(ModuleNotFoundError) as raised:
        part("kadence_that_is_nowhere")
    assert not isinstance(raised.value, MissingDependencyError)
