"""A SPARK_HOME from which Python workers start fast.

Spark puts ``SPARK_HOME/python/lib/pyspark.zip`` before everything else on the path of its Python processes: it serves
clusters whose machines have no PySpark. A zip holds no bytecode, so each process, and a streaming query starts five,
compiles PySpark anew, for one to two seconds. Where workers run on this machine with this very Python they have PySpark
installed. They get a home that is the installed one by links, without that zip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kadence.java import cache_directory

__all__ = ["home_without_zip"]

_LINKED: Final = ("bin", "conf", "data", "jars", "licenses", "sbin")


def home_without_zip(cache: Path | None = None) -> Path | None:
    """The directory to give as ``SPARK_HOME``, made when it is not there yet; None: Spark's own does as well.

    Args:
        cache: where it is made; the user's cache directory unless given.
    """
    spec = importlib.util.find_spec("pyspark")
    if os.name == "nt" or "SPARK_HOME" in os.environ or spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not (installed / "jars").is_dir():  # a PySpark without Spark, which connects to one elsewhere
        return None
    name = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    home = (cache or cache_directory()) / f"spark-{name}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for entry in _LINKED:
            # Another process may make the same link at this moment.
            with suppress(FileExistsError):
                (home / entry).symlink_to(installed / entry)
    except OSError:  # nowhere to write: it starts more slowly then
        return None
    return home
