"""Peers on the JVM without any: a reason, no crash. With them only what needs no network is tested."""

import shutil
import subprocess
from contextlib import closing

import pytest

from bench import jvm
from bench.engine import SkippedError
from bench.workloads.plain import messages, rules, selectors

pytestmark = pytest.mark.nightly


@pytest.fixture(autouse=True)
def nothing_remembered():
    jvm._jdks.cache_clear()
    jvm._compiled.cache_clear()
    yield
    jvm._jdks.cache_clear()
    jvm._compiled.cache_clear()


@pytest.mark.parametrize("name", jvm.PEERS)
def test_without_a_jdk_a_peer_is_skipped_with_the_reason(name, monkeypatch):
    monkeypatch.setattr(jvm, "_jdks", dict)
    with pytest.raises(SkippedError, match="needs a JDK"):
        jvm.JvmEngine(name, "Z", 1_000, 10)


def test_a_jdk_that_is_too_old_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(jvm, "_jdks", lambda: {17: tmp_path})
    with pytest.raises(SkippedError, match="Java 21 or later, found only JDK 17"):
        jvm.JvmEngine("lucene-monitor", "Z", 1_000, 10)


def test_what_was_not_fetched_is_not_fetched_in_the_quick_tour(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "_jdks", lambda: {21: tmp_path})
    with pytest.raises(SkippedError, match="--full fetches them"):
        jvm.JvmEngine("artemis", "Z", 1_000, 10, fetch=False)


PLAIN_PEER = """
final class Plain implements Peer<Workload.Triple> {
    private final java.util.List<Workload.Triple> rules = new java.util.ArrayList<>();
    public void add(int rule, Workload.Triple triple) { rules.add(triple); }
    public Workload.Triple message(Workload.Triple triple) { return triple; }
    public void match(Workload.Triple message, Found found) {
        for (int rule = 0; rule < rules.size(); rule++) {
            Workload.Triple one = rules.get(rule);
            if (one.type().equals(message.type()) && one.color().equals(message.color())
                    && one.weight() < message.weight()) found.add(rule);
        }
    }
}
"""


@pytest.fixture
def plain_peer(tmp_path, monkeypatch):
    """A function that adds a peer of no library to the sources."""

    def add(text):
        sources = tmp_path / "peers"
        shutil.copytree(jvm.SOURCES, sources)
        (sources / "Plain.java").write_text(text)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(jvm, "SOURCES", sources)
        monkeypatch.setitem(jvm.PEERS, "plain", jvm.Peer("Plain", ()))

    return add


@pytest.mark.skipif(not jvm._jdks(), reason="no JDK")
def test_the_harness_makes_the_same_rules_and_messages(plain_peer):
    # The harness with a peer of no library: it finds the check values, and ends when nobody asks more.
    plain_peer(PLAIN_PEER)
    for workload, expected in (("Z", (2_007, 964_764)), ("U", (8, 4_833))):
        with closing(jvm.JvmEngine("plain", workload, 1_000, 100)) as engine:
            found = engine.judge()
            assert (found.matches, found.rule_sum) == expected
            assert engine.run() >= 0 and engine.bytes_a_rule > 0
        assert engine._process.returncode == 0


@pytest.mark.skipif(not jvm._jdks(), reason="no JDK")
def test_a_peer_that_dies_is_skipped(plain_peer):
    plain_peer(PLAIN_PEER.replace("{ rules.add(triple); }", "{ System.exit(3); }"))
    with pytest.raises(SkippedError, match="code 3"):
        jvm.JvmEngine("plain", "Z", 1_000, 100)


def test_sources_of_peers_compile_alone_where_they_need_nothing(tmp_path):
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac on PATH")
    files = [str(jvm.SOURCES / file) for file in jvm.HARNESS]
    subprocess.run([javac, "-Werror", "-Xlint:all", "-d", str(tmp_path), *files], check=True)


def test_what_crosses_is_what_the_definition_says():
    # The texts and names that Workload.java makes are spelled there once more.
    java = (jvm.SOURCES / "Workload.java").read_text()
    assert next(selectors(rules("Z", 1))) == "JMSType = 't38' AND color = 'c26' AND weight > 9710"
    assert '"JMSType = \'" + type + "\' AND color = \'" + color + "\' AND weight > " + weight' in java
    assert messages(1)[1].column("JMSType")[0].as_py() == "t46"
