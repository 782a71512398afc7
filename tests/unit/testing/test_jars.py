from __future__ import annotations

import stat
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from selectroute.spark import session
from selectroute.spark.session import Java
from selectroute.testing import jars
from selectroute.testing.jars import JarError, Module, fetch, forget, kept

ONE = Module("org.example", "one", "1.0")
TWO = Module("org.example", "two_2.13", "2.1")


@pytest.fixture
def ivy(monkeypatch, tmp_path):
    """A Java that plays Ivy: it has the module `one` and `two_2.13`, and writes down how it was called."""
    script = tmp_path / "home" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"""#!/bin/sh
echo "$@" >>{tmp_path}/calls
while [ $# -gt 0 ]; do
  case $1 in
    -dependency) name=$3 version=$4 ;;
    -retrieve) folder=${{2%/*}} ;;
  esac
  shift
done
[ "$name" = lost ] && exit 1
[ "$name" = late ] && [ "$(grep -c late {tmp_path}/calls)" -ge 3 ] && name=found_late
case $name in late|never) echo 'Server access error at url'; exit 1 ;; esac
name=${{name#found_}}
mkdir -p "$folder" && echo "$name" >"$folder/$name-$version.jar"
"""
    )
    script.chmod(0o755)
    monkeypatch.setattr(session, "find_java", lambda: Java(tmp_path / "home", 17, "test"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(jars.IVY_SETTINGS, raising=False)
    monkeypatch.setattr(jars, "_PAUSES", (0.0, 0.0))
    return tmp_path / "calls"


def test_jars_are_fetched_once_and_kept_where_only_this_user_writes(ivy, tmp_path):
    assert kept("set") == ()
    first = fetch("set", [TWO, ONE])
    assert [jar.name for jar in first] == ["one-1.0.jar", "two_2.13-2.1.jar"]
    assert fetch("set", [TWO, ONE]) == first == kept("set")
    assert len(ivy.read_text().splitlines()) == 2
    folder = first[0].parents[2]
    assert folder.is_relative_to(tmp_path / "cache")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_module_comes_alone_unless_what_it_depends_on_is_asked_for(ivy):
    fetch("alone", [ONE])
    fetch("with", [ONE], transitive=True)
    alone, with_others = ivy.read_text().splitlines()
    assert "-notransitive" in alone and "-notransitive" not in with_others


def test_settings_of_ones_own_are_handed_to_ivy(ivy, monkeypatch):
    monkeypatch.setenv(jars.IVY_SETTINGS, "/etc/ivysettings.xml")
    fetch("set", [ONE])
    assert "-settings /etc/ivysettings.xml" in ivy.read_text()


def test_a_module_that_is_not_to_be_had_leaves_nothing_behind_and_is_a_sentence(ivy, tmp_path):
    lost = Module("org.example", "lost", "3")
    with pytest.raises(
        JarError, match=r"org\.example:lost:3 could not be fetched: the registry does not have"
    ):
        fetch("set", [ONE, lost])
    assert len(ivy.read_text().splitlines()) == 2
    assert kept("set") == ()
    assert [path.name for path in (tmp_path / "cache").rglob("*.jar")] == []


def test_a_registry_that_does_not_answer_is_asked_three_times(ivy):
    assert [jar.name for jar in fetch("late", [Module("org.example", "late", "1")])] == ["late-1.jar"]
    with pytest.raises(JarError, match="does not answer"):
        fetch("never", [Module("org.example", "never", "1")])
    assert len(ivy.read_text().splitlines()) == 3 + 3


def test_who_fetches_at_the_same_time_gets_the_jars_of_who_was_first(ivy, monkeypatch):
    real = jars._ivy

    def slower(module: Module, folder: Path, *rest) -> None:
        real(module, folder, *rest)
        monkeypatch.setattr(jars, "_ivy", real)
        fetch("set", [ONE])

    monkeypatch.setattr(jars, "_ivy", slower)
    assert [jar.name for jar in fetch("set", [ONE])] == ["one-1.0.jar"]
    assert [path.name for path in kept("set")[0].parents[1].iterdir()] == ["set"]


def test_what_is_forgotten_is_fetched_anew(ivy):
    fetch("set", [ONE])
    forget("set")
    assert kept("set") == ()
    assert len(fetch("set", [ONE])) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "one-1.0.jar").write_bytes(b"another"),
        lambda folder: (folder / "one-1.0.jar").unlink(),
        lambda folder: (folder / "SHA256SUMS").unlink(),
        lambda folder: (folder / "SHA256SUMS").write_bytes(b"\xff"),
        lambda folder: (folder / "SHA256SUMS").write_text("0" * 64 + "  ../one-1.0.jar"),
    ],
    ids=["changed", "missing", "no list", "a list that is not text", "a list that leads elsewhere"],
)
def test_a_folder_that_is_not_as_it_was_fetched_is_fetched_anew(ivy, damage):
    [jar] = fetch("set", [ONE])
    damage(jar.parent)
    assert kept("set") == ()
    assert fetch("set", [ONE]) == (jar,) == kept("set")
    assert jar.read_text() == "one\n"


def test_a_jar_that_was_not_fetched_is_not_loaded(ivy):
    [jar] = fetch("set", [ONE])
    (jar.parent / "evil-extra-1.0.jar").write_bytes(b"code")
    assert fetch("set", [ONE]) == (jar,)


def test_an_ivy_that_hangs_is_ended(ivy, monkeypatch):
    monkeypatch.setattr(jars, "_SECONDS", 0.1)
    (ivy.parent / "home" / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(JarError, match="took longer"):
        fetch("set", [ONE])


def test_without_pyspark_the_sentence_names_the_extra(monkeypatch):
    monkeypatch.setattr(jars, "find_spec", lambda _: None)
    with pytest.raises(JarError, match="extra `spark`"):
        jars.spark_jars()
