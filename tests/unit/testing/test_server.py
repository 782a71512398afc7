from __future__ import annotations

import os
import signal
import time

import pytest

from selectroute.testing.broker import ServerError, ServerProcess, free_ports

SLEEP = ["sleep", "600"]


def exists(pid):
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_can_be_started_again_after_its_end(tmp_path, end):
    server = ServerProcess(tmp_path / "log", SLEEP)
    for _ in range(2):
        server.start(lambda: True)
        assert server.is_alive() and exists(server.pid)
        getattr(server, end)()
        assert not server.is_alive() and not exists(server.pid)


def test_a_server_that_ends_by_itself_is_an_error_with_its_last_line(tmp_path):
    server = ServerProcess(tmp_path / "log", ["sh", "-c", "echo first; echo the port is taken >&2; exit 3"])
    with pytest.raises(ServerError, match=r"^the port is taken$"):
        server.start(lambda: False)
    assert not server.is_alive()


def test_the_logs_of_all_starts_are_kept(tmp_path):
    server = ServerProcess(
        tmp_path / "log", ["sh", "-c", "echo $WHO; sleep 600"], {**os.environ, "WHO": "me"}
    )
    for count in (1, 2):
        server.start(lambda count=count: server.log.read_text() == "me\n" * count)
        server.stop()


def test_a_server_ends_when_the_process_that_started_it_is_killed(tmp_path):
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            server = ServerProcess(tmp_path / "log", SLEEP)
            server.start(lambda: True)
            os.write(write, str(server.pid).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    pid = int(os.read(read, 20))
    os.waitpid(child, 0)
    deadline = time.monotonic() + 60
    while exists(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_free_ports_are_distinct():
    assert len(set(free_ports(50))) == 50
