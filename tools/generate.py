"""Writes what is made of other files of this repository.

- packages/kadence/src/kadence/protocol/ of schema/*.txt;
- the calls of the admin clients of the operations in kadence.admin (admin_text.py);
- the asyncio classes of those for threads (async_text.py);
- the lists of public names of the imports for type checkers (public_text.py);
- the version of each package, in its pyproject.toml, of kadence.version;
- the types of settings of the tables in kadence.config (settings_text.py).

    python tools/generate.py           writes what has changed
    python tools/generate.py --check   writes nothing; fails when something would change (for CI)

Needs ruff, which gives the result its final form.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from admin_text import OperationError, operation_files, values_of
from async_rules import TWINS
from async_text import RuleError, async_source
from layout import CLIENT, PACKAGES, ROOT
from public_text import admin_source, package_source
from python_modules import errors_source, module_source, tables_source
from schema_text import SchemaError, parse_errors, parse_module

SCHEMA = ROOT / "schema"
PACKAGE = CLIENT / "src" / "kadence"
TARGET = PACKAGE / "protocol"
WRITTEN_BY_HAND = frozenset({"__init__.py", "client_frames.py", "registry.py", "message.py"})


def sources() -> dict[str, str]:
    """All files of `TARGET` by name, as they come out of the generator."""
    modules = [parse_module(path) for path in sorted(SCHEMA.glob("*.txt")) if path.name != "errors.txt"]
    files = {f"{module.python_name}.py": module_source(module) for module in modules}
    files["error_codes.py"] = errors_source(parse_errors(SCHEMA / "errors.txt"))
    files["tables.py"] = tables_source(modules)
    return files


def async_files() -> dict[str, str]:
    """The asyncio classes' modules by their paths within the client, as they come out of the generator."""
    return {
        f"{rules.folder}/{rules.target}": async_source(
            (PACKAGE / rules.folder / rules.source).read_text(), rules
        )
        for rules in TWINS
    }


def admin_files() -> dict[str, str]:
    """The admin clients' calls, and the lists of names that follow from them, by their paths within the client."""
    folder = PACKAGE / "admin"
    values = values_of(folder)
    return {
        **{f"admin/{name}": text for name, text in operation_files(folder).items()},
        "admin/__init__.py": admin_source((folder / "__init__.py").read_text(), values),
        "__init__.py": package_source((PACKAGE / "__init__.py").read_text(), values),
    }


def settings_files() -> dict[str, str]:
    """The types of settings by their paths within the client, as they come out of the generator."""
    # Not above: reading the tables imports the protocol, which this program may just have to write.
    from settings_text import FILES, settings_source

    return {path: settings_source(path) for path in FILES}


def project_files() -> dict[Path, str]:
    """Each pyproject.toml with the version of all packages, its own and that of the packages it needs."""
    from kadence.version import VERSION

    files = {}
    for package in PACKAGES:
        text = (package / "pyproject.toml").read_text()
        text = re.sub(r'^version = ".*"$', f'version = "{VERSION}"', text, count=1, flags=re.MULTILINE)
        files[package / "pyproject.toml"] = re.sub(
            r'("kadence[\w-]*(?:\[[\w,-]+\])?==)[^"]+"', rf'\g<1>{VERSION}"', text
        )
    return files


def formatted(files: dict[str, str]) -> dict[str, str]:
    """The files after `ruff format` and the fixes of `ruff check`, under the project's rules."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        config = str(ROOT / "pyproject.toml")
        ruff = [sys.executable, "-m", "ruff"]
        for command in (["check", "--quiet", "--select=I,RUF022", "--fix"], ["format", "--quiet"]):
            subprocess.run(
                [*ruff, *command, "--config", config, "--no-cache", str(folder)],
                check=True,
            )
        return {file: (folder / file).read_text() for file in files}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail when the tree differs from what it is made of",
    )
    check: bool = parser.parse_args().check
    try:
        wanted = formatted(sources())
        present = {
            path.name: path.read_text() for path in TARGET.glob("*.py") if path.name not in WRITTEN_BY_HAND
        }
        differs = _written({TARGET / name: text for name, text in wanted.items()}, check=check)
        for name in sorted(present.keys() - wanted.keys()):
            differs = True
            print(f"{'no schema for' if check else 'removed'}: {name}")
            if not check:
                (TARGET / name).unlink()
        others = formatted({**admin_files(), **async_files(), **settings_files()})
    except (SchemaError, RuleError, OperationError) as error:
        print(error, file=sys.stderr)
        return 2
    differs |= _written({PACKAGE / name: text for name, text in others.items()}, check=check)
    return 1 if check and differs else 0


def _written(files: dict[Path, str], *, check: bool) -> bool:
    """Write what differs, or only name it; whether anything does."""
    differing = {path: text for path, text in files.items() if not path.exists() or path.read_text() != text}
    for path, text in differing.items():
        print(f"{'differs' if check else 'written'}: {path.relative_to(PACKAGE)}")
        if not check:
            path.write_text(text)
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
