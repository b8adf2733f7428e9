"""Turn a checkout of Kadence (one distribution, src/kadence) into packages/ (five distributions).

    python tools/move/move.py CHECKOUT [--ruff /path/to/ruff]

Steps: git mv; names of modules and paths in all texts; files that are written anew (files/); edits by hand
(edits.py), each of which says when its text is no longer there; ruff's order of imports and layout.
Nothing is committed. It works on a clean checkout only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

ROOMS = {
    "registry": ("kadence-schemas", "kadence_schemas"),
    "broker": ("kadence-broker", "kadence_broker"),
    "coordinator": ("kadence-broker", "kadence_broker/coordinator"),
    "testing": ("kadence-broker", "kadence_testing"),
    "spark": ("kadence-spark", "kadence_spark"),
    "cli": ("kadence-cli", "kadence_cli"),
}
"""Rooms of src/kadence that leave the client: their package, and their folder in its src."""

TESTS = {
    "kadence": (
        "admin", "client", "connection", "consumer", "metrics", "net", "otel", "producer", "protocol", "reading",
        "records", "security", "wire", "work",
        "test_bad_input.py", "test_build.py", "test_clock.py", "test_compiled.py", "test_compiled_types.py", "test_config.py",
        "test_deserializers.py", "test_errors.py", "test_foreign_keys.py", "test_forked.py", "test_free_threaded.py",
        "test_garbage.py", "test_idioms.py", "test_imports.py", "test_lag.py", "test_layered.py", "test_logs.py",
        "test_logs_of_threads.py", "test_printable.py", "test_serializers.py", "test_settings.py", "test_stubs.py",
        "test_whereabouts.py", "test_without_posix.py",
    ),
    "kadence-schemas": ("registry",),
    "kadence-broker": ("broker", "coordinator", "testing"),
    "kadence-spark": ("spark",),
    "kadence-cli": ("cli",),
}
"""Tests that go beside their package. The others show several packages together, or are what tests stand on."""

TEXTS = {".py", ".pyx", ".pxd", ".pyi", ".h", ".c", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".supp", ".sh", ".txt", ".in", ".html", ".json"}
NAMES = "|".join(ROOMS)

# Loggers keep their names: the level of `kadence` is that of all of it, whichever package a line comes from.
LOGGERS = re.compile(
    rf"""(logger\(|getLogger\(|at_level\([^,()]*,\s*|set_level\([^,()]*,\s*|"(?:WARNING|INFO|ERROR)", |WARN )(["']?)kadence\.({NAMES})(?![\w])"""
)
MODULE = re.compile(rf"(?<![\w./-])kadence\.({NAMES})\b(?!\()")
FOLDER = re.compile(rf"(?<![\w-])(src/)?kadence/({NAMES})\b(?=/|\b)")
MODULES = {
    room: folder.replace("/", ".") for room, (_, folder) in ROOMS.items()
}
PLACES = {name: package for package, names in TESTS.items() for name in names}
# Longest first, so that a room is no part of another's name.
TEST_PATH = re.compile(r"(?<![\w/.-])(?<!ROOT / \")tests/(" + "|".join(re.escape(name) for name in sorted(PLACES, key=len, reverse=True)) + r")(?![\w-])")


def git(*words: str, at: Path) -> str:
    return subprocess.run(("git", *words), cwd=at, capture_output=True, text=True, check=True).stdout


def moved(root: Path) -> None:
    """git mv."""
    def mv(old: str, new: str) -> None:
        if not (root / old).exists():
            print(f"NOT THERE: {old}")
            return
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", old, new, at=root)

    for room, (package, folder) in ROOMS.items():
        if room != "coordinator":
            mv(f"src/kadence/{room}", f"packages/{package}/src/{folder}")
    mv("src/kadence/coordinator", "packages/kadence-broker/src/kadence_broker/coordinator")
    for name in ("pyspark_kadence", "pyspark_kadence_delta", "pyspark_kadence_iceberg"):
        mv(f"src/{name}", f"packages/kadence-spark/src/{name}")
    mv("src/kadence", "packages/kadence/src/kadence")
    mv("setup.py", "packages/kadence/setup.py")
    for package, names in TESTS.items():
        for name in names:
            mv(f"tests/{name}", f"packages/{package}/tests/{name}")
    mv("tests/conftest.py", "conftest.py")
    # What git does not know goes where its neighbours went: compiled modules, in a try.
    for old in sorted(root.glob("src/kadence/**/*.so")):
        new = root / "packages/kadence/src" / old.relative_to(root / "src")
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(old, new)
    shutil.rmtree(root / "src", ignore_errors=True)


def renamed(text: str, path: str) -> str:
    """The text with the new names."""
    text = LOGGERS.sub(lambda found: f"{found[1]}{found[2]}kadence\0{found[3]}", text)
    text = MODULE.sub(lambda found: MODULES[found[1]], text)
    text = text.replace("kadence\0", "kadence.")
    text = FOLDER.sub(
        lambda found: (f"packages/{ROOMS[found[2]][0]}/src/" if found[1] else "") + ROOMS[found[2]][1], text
    )
    if not path.startswith("packages/kadence/"):
        text = re.sub(r"(?<![\w/-])src/kadence\b", "packages/kadence/src/kadence", text)
    text = re.sub(r"(?<![\w/-])src/pyspark_kadence", "packages/kadence-spark/src/pyspark_kadence", text)
    # Comments keep tests/...: it is one package for whoever reads them. What is run needs the folder.
    pattern = re.compile(r"(?<=[\"'])" + TEST_PATH.pattern) if path.endswith((".py", ".pyx")) else TEST_PATH
    text = pattern.sub(lambda found: f"packages/{PLACES[found[1]]}/tests/{found[1]}", text)
    if not path.startswith(("docs/", "examples/")):  # there it is a file of the reader's own
        text = re.sub(r"(?<![\w/.-])tests/conftest\.py", "conftest.py", text)
    text = re.sub(r"^(\s*)from tests\.conftest import", r"\1from conftest import", text, flags=re.MULTILINE)
    text = re.sub(r"from kadence import registry as formats", "import kadence_schemas as formats", text)
    if re.match(r"packages/[\w-]+/tests/", path):
        text = re.sub(
            r"(Path\(__file__\)(?:\.resolve\(\))?\.parents\[)(\d)(\])",
            lambda found: f"{found[1]}{int(found[2]) + 2}{found[3]}",
            text,
        )
    return text


def rewritten(root: Path) -> None:
    for name in git("ls-files", at=root).splitlines():
        path = root / name
        if name.startswith(("findings/", "schema/")) and not name.endswith(".md") or path.is_symlink() or not path.is_file():
            continue
        if path.suffix not in TEXTS and path.name not in ("Makefile", "run", ".gitignore"):
            continue
        if path.suffix in (".json", ".txt") and "tests" in name and path.name != "durations.json":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        changed = renamed(text, name)
        if changed != text:
            path.write_text(changed, encoding="utf-8")


def laid(root: Path) -> None:
    """Files that are written anew."""
    files = HERE / "files"
    for file in sorted(files.rglob("*")):
        if file.is_file():
            target = root / file.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


LIMIT = 120


def wrapped(root: Path, ruff: str) -> list[str]:
    """Prose that became too long is cut at its last space, and what is cut off begins the next line."""
    left: list[str] = []
    for _ in range(6):
        told = subprocess.run(
            (ruff, "check", "--select=W505", "--output-format=json", "--quiet", "."), cwd=root, capture_output=True, text=True, check=False
        ).stdout
        places = sorted({(each["filename"], each["location"]["row"]) for each in json.loads(told or "[]")}, reverse=True)
        left = []
        for name, row in places:
            file = Path(name)
            lines = file.read_text(encoding="utf-8").split("\n")
            line = lines[row - 1]
            indent = line[: len(line) - len(line.lstrip())]
            mark = "# " if line.lstrip().startswith("# ") else ""
            if mark and "----" in line:
                lines[row - 1] = re.sub(r"-{4,}", "---", line)
            elif line.count('"""') == 2:
                left.append(f"{file.relative_to(root)}:{row}")
                continue
            else:
                cut = line.rfind(" ", len(indent) + len(mark), LIMIT)
                rest = line[cut + 1 :]
                lines[row - 1] = line[:cut]
                after = lines[row] if row < len(lines) else ""
                inside = after.strip().removeprefix(mark.strip()).strip() if after.startswith(indent + mark) else ""
                same = bool(inside) and len(after) - len(after.lstrip()) == len(indent) and not inside.startswith(('"""', "-", "#", "*", "|"))
                if same and not (mark and not after.lstrip().startswith("#")) and not re.match(r"(from|import|def|class|async|return|if|for|with|@)\b", inside):
                    lines[row] = f"{indent}{mark}{rest} {inside}"
                else:
                    lines.insert(row, f"{indent}{mark}{rest}")
            file.write_text("\n".join(lines), encoding="utf-8")
        if not places or len(left) == len(places):
            break
    return left


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--ruff", default=shutil.which("ruff") or ".venv/bin/ruff")
    asked = parser.parse_args()
    root = asked.checkout.resolve()
    if git("status", "--porcelain", "--untracked-files=no", at=root):
        raise SystemExit(f"{root} has changes that are not committed")
    moved(root)
    rewritten(root)
    laid(root)
    import edits

    lost = edits.made(root)
    git("add", "-A", "packages", "tests", "conftest.py", at=root)
    for words in (
        ("check", "--select=I,RUF022,F401", "--fix", "--exit-zero"),
        ("format",),
    ):
        if subprocess.run((asked.ruff, *words, "--quiet", "."), cwd=root, stdout=subprocess.DEVNULL, check=False).returncode:
            print(f"ruff {words[0]} found something; run it in the checkout")
    lost += [f"{place}: too long" for place in wrapped(root, asked.ruff)]
    git("add", "-A", at=root)
    for each in lost:
        print(f"NOT EDITED: {each}")
    print(f"{root}: {len(git('ls-files', 'packages', at=root).splitlines())} files in packages, {len(lost)} edits lost their text")


if __name__ == "__main__":
    main()
