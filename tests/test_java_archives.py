"""tools/java_archives.py: which archives are made, and where the JVMs of a run get them from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import java_archives
from kadence.java import Java
from kadence_testing.kafka import _java_command

KAFKA: Final = "KADENCE_KAFKA_JAVA_OPTIONS"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No archive yet."""
    place = tmp_path / "build" / "java-classes"
    place.mkdir(parents=True)
    monkeypatch.setattr(java_archives, "ROOT", tmp_path)
    monkeypatch.setattr(java_archives, "FOLDER", place)
    for name in (KAFKA, "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    return place


def test_without_archives_no_java_is_told_of_any() -> None:
    assert java_archives.environment() == {}


def test_an_archive_is_an_option_beside_those_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "spark-1.jsa").touch()
    (folder / "kafka-2.half").touch()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    assert java_archives.environment() == {
        "SPARK_SUBMIT_OPTS": f"-Da=b -XX:SharedArchiveFile={folder}/spark-1.jsa -Xlog:cds*=off"
    }


def test_each_java_of_kafka_takes_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _java_command(Path("libs"))
    monkeypatch.setenv(KAFKA, "-Da=b -Dc=d")
    assert _java_command(Path("libs")) == [plain[0], "-Da=b", "-Dc=d", *plain[1:]]


def test_an_archive_is_made_once_for_these_jars(tmp_path: Path, folder: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").touch()
    made: list[Path] = []

    def run(archive: Path) -> None:
        made.append(archive)
        archive.touch()

    def make() -> Path:
        java_archives._make("kafka", Java(tmp_path, 17, "test"), jars, run)
        [archive] = folder.iterdir()
        return archive

    first = make()
    assert make() == first
    (jars / "b.jar").touch()
    second = make()
    assert second != first
    (tmp_path / "release").write_text("another Java")
    assert make() not in (first, second)
    assert len(made) == 3


def test_what_cannot_be_made_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_java() -> Java:
        raise OSError("no Java")

    monkeypatch.setattr(java_archives, "find_java", find_java)
    assert java_archives.main() == 0
    assert "no Java" in capsys.readouterr().err


def test_the_home_of_spark_stays_and_has_no_zip(tmp_path: Path) -> None:
    spark = tmp_path / "pyspark"
    (spark / "jars").mkdir(parents=True)
    (spark / "python").mkdir()
    home = java_archives.spark_home(spark)
    assert java_archives.spark_home(spark) == home
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()
