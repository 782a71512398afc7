"""``selectroute queue``: the same on a database and on a service, and with which exit code."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest

import selectroute as sr
from selectroute.queues.sql import bulk as bulks
from selectroute.queues.sql.queue import SqlQueue
from selectroute.registry.registry import Registry
from tests.support.queue_calls import hex_of, id_of
from tests.support.servers.serving import served
from tests.support.strategies import TIME_EDGES


@pytest.fixture
def queue(run_on_either):
    """A subcommand of `queue`, on the queues beside a registry."""
    return partial(run_on_either, "queue")


def test_a_queue_lives_from_create_to_delete(queue):
    create = ("create", "ORDERS", "--order", "fifo", "--max-depth", 5, "--dialect", "jms")
    code, out, err = queue(*create)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "ORDERS: 0 messages",
        "  order         fifo",
        "  priority      4, of messages without one",
        "  persistent    no, of messages that do not say",
        "  depth         5",
        "  bytes         4,194,304 in a body",
        "  dialect       jms",
    ]
    assert queue(*create)[0] == 0
    code, _, err = queue("create", "ORDERS")
    assert code == 4 and "2100" in err
    assert queue("create", "a b")[0] == 1 and queue("create", "B", "--dialect", "sql")[0] == 2
    assert queue("list") == (0, "ORDERS\n", "")
    assert json.loads(queue("list", "-o", "json")[1]) == [{"name": "ORDERS"}]
    assert queue("depth", "ORDERS") == (0, "0\n", "")
    described = json.loads(queue("depth", "ORDERS", "-o", "json")[1])
    assert (described["name"], described["order"], described["max_depth"]) == ("ORDERS", "fifo", 5)
    assert described["oldest"] is None
    queue("put", "ORDERS", "x")
    described = json.loads(queue("depth", "ORDERS", "-o", "json")[1])
    assert described["depth"] == 1 and described["oldest"].endswith("Z")
    assert described["waiting"] in (0, None), "a database does not know who waits"
    code, _, err = queue("delete", "ORDERS")
    assert code == 4 and "MQRC_Q_NOT_EMPTY" in err
    assert queue("delete", "ORDERS", "--purge") == (0, "", "")
    for arguments in (("delete", "ORDERS"), ("depth", "ORDERS"), ("get", "ORDERS"), ("put", "ORDERS", "x"),
                      ("browse", "ORDERS"), ("list", "ORDERS")):  # fmt: skip
        code, out, err = queue(*arguments)
        assert (code, out) == (3, "") and "MQRC_UNKNOWN_OBJECT_NAME" in err


def test_a_message_is_put_listed_browsed_and_got_once(queue, database):
    queue("create", "Q")
    code, out, err = queue(
        "put", "Q", "shipped", "--correlation-id", "order-7", "-p", "weight:integer=3000",
        "-p", "color=light=blue", "-p", "a.b=c", "--priority", 7, "--persistent", "--expiry", "600",
        "--reply-to", "R@QM", "--sequence", 3,
        "--group-id", "ID:0a", "--offset", 4, "--last-in-group",
    )  # fmt: skip
    stored = "weight = 3000 (int), color = light=blue (string), a.b = c (string)"
    assert (code, err) == (0, f"properties: {stored}\n")
    with SqlQueue(database, "Q") as opened:
        message = opened.browse()
    descriptor = message.descriptor
    assert out == f"{hex_of(descriptor.msg_id)}\n"
    assert message.body == b"shipped"
    headers = {"JMSCorrelationID": "order-7", "JMSReplyTo": "queue://QM/R"}
    assert message.properties == headers | {"weight": sr.Int(3000), "color": "light=blue", "a.b": "c"}
    assert (descriptor.priority, descriptor.persistence, descriptor.msg_seq_number) == (7, True, 3)
    group = (descriptor.group_id, descriptor.offset, descriptor.last_in_group)
    assert group == (b"\x0a" + bytes(23), 4, True)
    assert 0 < descriptor.expiry <= 6000
    code, out, _ = queue("list", "Q")
    assert out.splitlines()[0].startswith("message id")
    assert "order-7" in out and "weight=3000" in out
    (listed,) = map(json.loads, queue("list", "Q", "-o", "ndjson")[1].splitlines())
    assert listed["properties"]["weight"] == {"type": "int", "value": 3000}
    assert queue("browse", "Q")[1] == "shipped"
    for by in (
        ("--correlation-id", "order-7"),
        ("--correlation-id", hex_of(id_of("order-7"))),
        ("--message-id", hex_of(descriptor.msg_id)),
        ("--group-id", "ID:0A00", "--sequence", 3, "--offset", 4),
        ("--message-token", listed["msgToken"]),
        ("--selector", "weight > 2999 AND color LIKE 'light%'"),
        ("--selector", "jms.Pri = 7", "--dialect", "ibm-mq"),
    ):
        code, out, _ = queue("browse", "Q", *by, "-o", "json")
        found = json.loads(out)
        assert (code, found.pop("body")) == (0, "shipped")
        assert {**found, "expiry": 0} == {**listed, "expiry": 0}
    assert queue("get", "Q", "--correlation-id", "other")[0] == 1
    assert queue("get", "Q", "--correlation-id", "order-7") == (0, "shipped", "")
    code, out, err = queue("get", "Q")
    assert (code, out) == (1, "")
    assert err == "selectroute: no message matches (MQRC 2033 MQRC_NO_MSG_AVAILABLE)\n"


def test_any_time_of_a_message_is_listed_browsed_and_got(queue, database):
    times = [time for time in TIME_EDGES if time >= 0]
    expirations = [time if time > 10**14 else 0 for time in times]
    queue("create", "ORDERS", "--order", "fifo")
    for both in zip(times, expirations, strict=True):
        queue("put", "ORDERS", "x")
        with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as connection, connection:
            set_times = "UPDATE queue_message SET timestamp = ?, expiration = ?, expiry = 1"
            connection.execute(f"{set_times} WHERE rowid = (SELECT max(rowid) FROM queue_message)", both)
    described = json.loads(queue("depth", "ORDERS", "-o", "json")[1])
    assert (described["depth"], described["oldest"][:5]) == (len(times), "1970-")
    assert [one["timestamp"] for one in json.loads(queue("list", "ORDERS", "-o", "json")[1])] == times
    assert "9999-12-31 23:59:59.999" in queue("list", "ORDERS")[1]
    assert queue("browse", "ORDERS")[0] == 0
    for both in zip(times, expirations, strict=True):
        got = json.loads(queue("get", "ORDERS", "-o", "json")[1])
        assert (got["timestamp"], got["expiration"], got["expiry"]) == (*both, "unlimited")


def test_any_bytes_go_in_by_standard_input_and_out_as_they_were(queue, monkeypatch):
    queue("create", "Q")
    body = bytes(range(256))
    assert queue("put", "Q", "-", stdin=body)[0] == 0
    assert json.loads(queue("browse", "Q", "-o", "json")[1])["body"] == {"type": "bytes", "value": body.hex()}
    written = []
    monkeypatch.setattr("selectroute.cli.commands.queue.write_body", written.append)
    assert queue("get", "Q")[0] == 0
    assert written == [body]
    made = json.loads(queue("put", "Q", "-o", "json")[1])
    assert made["messageId"].startswith("ID:") and "properties" not in made


def test_what_cannot_be_is_refused(queue):
    queue("create", "Q")
    for code, arguments in (
        (2, ("get", "Q", "--message-id", "ID:00")),
        (2, ("get", "Q", "--correlation-id", "ID:x")),
        (5, ("get", "Q", "--selector", "a >")),
        (5, ("list", "Q", "--selector", "a = = 1")),
        (2, ("get", "Q", "--message-token", "00")),
        (2, ("list", "Q", "--after", "00")),
        (2, ("get", "Q", "--wait", "-1")),
        (2, ("put", "Q", "-p", "weight")),
        (2, ("put", "Q", "-p", "weight:integer=x")),
        (2, ("put", "Q", "-p", "a=1", "-p", "a=2")),
        (1, ("put", "Q", "-p", "JMSPriority=1")),
        (2, ("put", "Q", "--message-id", "x")),
        (2, ("put", "Q", "--priority", "10")),
        *((2, ("purge", "Q", id, "")) for id in ("--message-id", "--correlation-id", "--group-id")),
    ):
        found, out, err = queue(*arguments)
        assert (found, out) == (code, "") and err, arguments
        assert queue("depth", "Q")[1] == "0\n", arguments


def test_a_selector_is_shown_where_it_is_wrong_in_the_dialect_of_its_queue(queue):
    queue("create", "Q", "--dialect", "ibm-mq")
    queue("put", "Q", "x", "-p", "a.b=c")
    assert queue("browse", "Q", "--selector", "a.b = 'c'")[1] == "x"
    code, _, err = queue("browse", "Q", "--selector", "a.b =")
    assert code == 5 and "dialect ibm-mq" in err and "a.b =\n" in err and "^" in err
    assert queue("browse", "Q", "--selector", "a.b = 'c'", "--dialect", "jms")[0] == 5


def test_a_message_is_waited_for(queue, database):
    queue("create", "Q")

    def put_later():
        time.sleep(0.3)
        with SqlQueue(database, "Q") as opened:
            opened.put(b"late")

    putting = threading.Thread(target=put_later)
    putting.start()
    assert queue("get", "Q", "--wait", 60)[1] == "late"
    putting.join()
    begun = time.monotonic()
    assert queue("browse", "Q", "--wait", 0.3)[0] == 1
    assert time.monotonic() - begun >= 0.3


def test_what_cannot_be_written_stays_on_a_queue_of_a_database(run, database, monkeypatch):
    SqlQueue.create(database, "Q").close()
    run("queue", "put", "Q", "kept", "--queues", database)

    def fails(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("selectroute.cli.commands.queue.write_body", fails)
    code, _, err = run("queue", "get", "Q", "--queues", database)
    assert code == 1 and "No space left" in err
    monkeypatch.undo()
    assert run("queue", "get", "Q", "--queues", database)[1] == "kept"


def test_queues_are_where_the_registry_is_unless_it_is_said(run, database, tmp_path, monkeypatch):
    monkeypatch.delenv("SELECTROUTE_REGISTRY", raising=False)
    code, _, err = run("queue", "list")
    assert code == 2 and "SELECTROUTE_QUEUES" in err
    monkeypatch.setenv("SELECTROUTE_REGISTRY", database)
    assert run("queue", "create", "A")[0] == 0
    monkeypatch.setenv("SELECTROUTE_QUEUES", f"sqlite:///{tmp_path}/other.db")
    assert run("queue", "list") == (0, "", "no queues\n")
    assert run("queue", "list", "--queues", database) == (0, "A\n", "")


def test_a_service_has_its_own_queue_manager_and_wants_its_token(run, database, monkeypatch):
    with Registry.open(database) as registry, served(registry, queue_manager="QM1") as url:
        monkeypatch.setenv("SELECTROUTE_QUEUES", url)
        run("queue", "create", "Q")
        code, _, err = run("queue", "put", "Q", "x")
        assert code == 1 and "2058" in err
        assert run("queue", "put", "Q", "x", "--queue-manager", "QM1")[0] == 0
        monkeypatch.setenv("SELECTROUTE_QUEUE_MANAGER", "QM1")
        _, secret = registry.tokens.add("reader")
        monkeypatch.setenv("SELECTROUTE_TOKEN", secret)
        assert run("queue", "browse", "Q")[1] == "x"
        code, out, err = run("queue", "get", "Q")
        assert (code, out) == (1, "") and "role writer" in err and secret not in err
        monkeypatch.setenv("SELECTROUTE_TOKEN", "srt_wrong")
        assert run("queue", "list")[0] == 1


def test_what_is_no_queue_service_is_said_so(run, monkeypatch):
    import http.server

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        do_DELETE = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("SELECTROUTE_QUEUES", f"http://127.0.0.1:{server.server_port}")
        for arguments in (("list",), ("get", "Q"), ("depth", "Q"), ("list", "Q")):
            code, out, err = run("queue", *arguments)
            assert (code, out.strip("[]\n")) == (1, "") or out.startswith("message id")
            assert err.count("\n") == 1 and "is not a queue's" in err
        server.shutdown()
        thread.join()


def test_serve_says_at_once_that_queues_cannot_be_there(run, database):
    serve = ("serve", "--registry", database, "--port", "0", "--queues")
    code, _, err = run(*serve, "mysql://root:hunter2@h/q")
    assert code == 1 and "SQLite or PostgreSQL" in err and "hunter2" not in err
    code, _, err = run(*serve, "http://127.0.0.1:9")
    assert code == 2 and "database" in err


def test_modules_of_queues_are_loaded_by_their_commands_only():
    code = "import sys, selectroute.cli; sys.exit('sqlalchemy' in sys.modules or 'starlette' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_serve_is_told_of_queues_by_options_environment_and_file(run, database, tmp_path, monkeypatch):
    told = []
    server = SimpleNamespace(run=lambda: None, is_publishing=False)
    monkeypatch.setattr("selectroute.service.app.create_app", lambda _, **options: told.append(options))
    monkeypatch.setattr("selectroute.service.server.bound", lambda *_, **options: server)

    def served_queues(*options):
        code, _, err = run("serve", "--registry", database, *options)
        assert code == 0, err
        return told[-1]["queues"], told[-1]["queue_manager"]

    assert served_queues() == (None, "selectroute")
    folder = tmp_path / "selectroute"
    folder.mkdir()
    (folder / "config.toml").write_text('queues = "sqlite:///file.db"\nqueue_manager = "FILE"\n')
    assert served_queues() == ("sqlite:///file.db", "FILE")
    monkeypatch.setenv("SELECTROUTE_QUEUES", "sqlite:///environment.db")
    monkeypatch.setenv("SELECTROUTE_QUEUE_MANAGER", "ENVIRONMENT")
    assert served_queues() == ("sqlite:///environment.db", "ENVIRONMENT")
    options = ("sqlite:///option.db", "OPTION")
    assert served_queues("--queues", options[0], "--queue-manager", options[1]) == options


def test_a_property_without_a_type_is_what_it_would_be_in_json(queue, database):
    given = ["a=3000", "b=-2.5e1", "c=true", "d=007", "e=order-7", "f=", "g=NaN", "h:string=1", 'i="x"']
    queue("create", "Q")
    assert queue("put", "Q", "", *(part for one in given for part in ("-p", one)))[0] == 0
    with SqlQueue(database, "Q") as opened:
        assert dict(opened.get().properties) == {
            "a": sr.Long(3000), "b": sr.Double(-25.0), "c": True, "d": "007", "e": "order-7", "f": "",
            "g": "NaN", "h": "1", "i": '"x"',
        }  # fmt: skip


def test_a_property_that_cannot_be_says_why(run, database, monkeypatch):
    monkeypatch.setenv("SELECTROUTE_QUEUES", database)
    monkeypatch.setenv("COLUMNS", "200")
    assert run("queue", "create", "Q")[0] == 0
    for text, sentence in (
        ("weight:integre=3000", "did you mean `integer`?"),
        ("weight:=3000", "there is no type ''"),
        ("a:b:integer=3", "there is no type 'b:integer'"),
        ("order-id=3", "'order-id' is not a valid name of a property"),
        ("2nd=3", "'2nd' is not a valid name of a property"),
        ("weight:integer=99999999999999999999", "outside the range of a Java int; use :long or :double"),
        ("weight:byte=128", "outside the range of a Java byte; use :short, :integer, :long or :double"),
        ("weight:long=9223372036854775808", "outside the range of a Java long; use :double"),
        ("weight:double=1e400", "outside the range of a Java double"),
        ("weight:integer=3.5", "not a whole number; use :double"),
        ("weight:integer=three", "the value is not a whole number"),
        ("flag:boolean=yes", "the value is not true or false"),
    ):
        code, out, err = run("queue", "put", "Q", "x", "-p", text)
        assert (code, out) == (2, "") and sentence in " ".join(err.replace("│", " ").split()), text
    assert run("queue", "depth", "Q")[1] == "0\n"


def test_an_error_of_a_queue_is_a_sentence_first(queue):
    queue("create", "ORDERS")
    code, _, err = queue("get", "ORDERS")
    assert (code, err) == (1, "selectroute: no message matches (MQRC 2033 MQRC_NO_MSG_AVAILABLE)\n")
    code, _, err = queue("get", "ORDERSX")
    assert code == 3 and "there is no queue" in err
    assert err.endswith(" (MQRC 2085 MQRC_UNKNOWN_OBJECT_NAME)\n")


def test_messages_are_counted_purged_and_moved(queue, monkeypatch):
    monkeypatch.setattr(bulks, "CHUNK", 2)
    queue("create", "A")
    queue("create", "B", "--max-depth", 4, "--max-message-length", 3)
    for number in range(8):
        ids = ("--correlation-id", f"c{number % 2}")
        queue("put", "A", "x" * number, "-p", f"number:integer={number}", *ids)
    light = ("--selector", "number < 2")
    assert queue("purge", "A", *light, "--dry-run") == (0, "2 messages match\n", "")
    assert json.loads(queue("purge", "A", "--dry-run", "-o", "json")[1]) == {"matched": 8, "exact": True}
    code, out, err = queue("purge", "A", *light, "--expected", 3)
    assert (code, out) == (4, "") and "2 messages match now, not 3" in err
    assert queue("purge", "A", *light, "--expected", 2) == (0, "2 messages removed\n", "")
    assert queue("depth", "A")[1] == "6\n"
    assert queue("move", "A", "B", "--correlation-id", "c1", "--dry-run")[1] == "3 messages match\n"
    code, out, err = queue("move", "A", "B", "--correlation-id", "c1")
    assert (code, out) == (1, "1 message moved\n")
    assert err == "2 messages stayed: the other queue does not take bodies of this length\n"
    code, out, _ = queue("move", "A", "B", "-o", "json")
    stayed = {"full": 0, "too_long": 4, "in_use": 0}
    assert (code, json.loads(out)) == (1, {"matched": 5, "exact": True, "done": 1, "stayed": stayed})
    assert (queue("depth", "A")[1], queue("depth", "B")[1]) == ("4\n", "2\n")
    assert queue("move", "B", "A") == (0, "2 messages moved\n", "")
    for arguments in (("purge", "NONE"), ("move", "A", "NONE"), ("move", "A", "NONE", "--dry-run")):
        assert queue(*arguments)[0] == 3
    assert queue("purge", "A", "--selector", "number <")[0] == 5 and queue("move", "A", "A")[0] == 1
    assert queue("purge", "A") == (0, "6 messages removed\n", "")


def test_a_list_goes_on_after_a_message(queue):
    queue("create", "Q")
    for number in range(5):
        queue("put", "Q", str(number))
    first = [json.loads(line) for line in queue("list", "Q", "--limit", 3, "-o", "ndjson")[1].splitlines()]
    more = queue("list", "Q", "--after", first[-1]["msgToken"], "-o", "ndjson")[1].splitlines()
    ids = {one["messageId"] for one in (*first, *map(json.loads, more))}
    assert (len(first), len(more), len(ids)) == (3, 2, 5)
