"""One batch: what it publishes, and that no crash, repeat or change of the registry alters that."""

import hashlib
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import selectroute as sr
from selectroute.spark.batch.pins import PinError
from selectroute.spark.job import CommitError
from selectroute.spark.sources.files import source, splits
from selectroute.spark.task.writer import Sinks
from selectroute.storage import Location
from tests.support.crashes import killed, kills
from tests.support.world import World

RED = {"properties": {"color": "red"}}
BLUE = {"properties": {"color": "blue"}}


def test_deliveries_unrouted_and_dead_letters_account_for_every_message(world):
    world.publish(7, red="color = 'red'", any="color IS NOT NULL")
    paths = [world.drop_json("a.jsonl", RED, BLUE, {}, "", "{"), world.drop_bytes("b.parquet", b"torn")]
    report = world.router().route(0, paths, "q")
    assert (report.counts.messages, report.counts.routed, report.counts.unrouted) == (5, 2, 1)
    assert report.counts.reasons == {"not-json": 1, "unreadable-file": 1}
    assert set(report.seconds) == {"pin", "plan", "match", "commit", "publish"}
    assert world.deliveries() == Counter(
        [("a.jsonl", 0, "red", 7), ("a.jsonl", 0, "any", 7), ("a.jsonl", 1, "any", 7)]
    )
    assert [(row["source"], row["offset"]) for row in world.rows("unrouted")] == [("a.jsonl", 2)]
    dead = {(row["source"], row["offset"], row["stage"], row["reason"]) for row in world.rows("dead-letters")}
    assert dead == {("a.jsonl", 4, "parse", "not-json"), ("b.parquet", None, "read", "unreadable-file")}
    assert {row["batch"] for row in world.rows("deliveries")} == {0}
    (line,) = world.accounting()
    assert line["messages"] == line["routed"] + line["unrouted"] + line["dead_lettered"] == 5
    lease = json.loads((world.snapshots / "leases" / "q.json").read_text())
    assert lease["revision"] == 7


def test_a_link_that_leads_out_of_the_input_folder_is_not_read(world, tmp_path):
    """Who may put files there may not read what the job can."""
    world.publish(1, red="color = 'red'")
    secret = tmp_path / "secret.jsonl"
    secret.write_text(json.dumps(RED) + "\nroot:x:0:0\n")
    inside = world.drop_json("a.jsonl", RED)
    links = [inside.with_name(name) for name in ("link.jsonl", "again.jsonl", "inner.jsonl", "far.parquet")]
    for link, target in zip(links, (secret, secret, inside, tmp_path / "none"), strict=True):
        link.symlink_to(target)
    (inside.parent / "folder").symlink_to(tmp_path, target_is_directory=True)
    links.append(inside.parent / "folder" / "secret.jsonl")
    warnings = []
    router = world.router()
    router._warn = warnings.append
    report = router.route(0, [inside, *links], "q")
    assert report.counts.reasons == {"link-outside": 4}
    assert (report.counts.messages, report.counts.routed) == (6, 2)
    assert {source for source, *_ in world.deliveries()} == {"a.jsonl", "inner.jsonl"}
    assert [row["raw"] for row in world.rows("dead-letters")] == [None] * 4
    assert len(warnings) == 1 and "leads out of it" in warnings[0]
    router.route(1, links, "q")
    assert len(warnings) == 1


def test_columns_that_selectors_read_and_files_do_not_have_are_named_once(world):
    """A column that was renamed matches nothing, and must not do so without a word."""
    world.publish(1, red="color = 'red'", heavy="Weight > 1", sized="size = 1")
    warnings = []
    router = world.router()
    router._warn = warnings.append
    lacking = [
        world.drop_parquet(f"{name}.parquet", pa.table({"color": ["red"], "weight": [3]})) for name in "ab"
    ]
    router.route(0, lacking[:1], "q")
    assert warnings == [
        "selectors read 2 columns that a.parquet does not have: Weight (there is weight), size; they are "
        "NULL for every message"
    ]
    router.route(1, [*lacking[1:], world.drop_json("c.jsonl", RED)], "q")
    assert len(warnings) == 1
    router.route(2, [world.drop_parquet("d.parquet", pa.table({"color": ["red"], "Weight": [3]}))], "q")
    assert len(warnings) == 2 and "1 column that d.parquet does not have: size; it is" in warnings[1]


def test_the_commit_has_size_and_digest_of_each_file_whose_strings_are_dictionary_encoded(world):
    world.publish(1, red="color = 'red'")
    router = world.router()
    router.route(0, [world.drop_json("a.jsonl", RED, BLUE)], "q")
    written = router.commits.read(0)["files"]
    assert [file["path"].split("/")[0] for file in written] == ["deliveries", "unrouted"]
    for file in written:
        data = (world.output / file["path"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
    schema = pq.read_schema(world.output / written[0]["path"])
    assert all(pa.types.is_dictionary(schema.field(n).type) for n in ("subscription", "source", "message_id"))
    assert "batch" not in schema.names


def test_parquet_messages_keep_their_ids_and_rows(world):
    world.publish(1, heavy="weight > 5", all="")
    table = pa.table(
        {
            "weight": pa.array(range(10), pa.int32()),
            "JMSMessageID": [None if i == 3 else f"ID:{i}" for i in range(10)],
            "body": ["x"] * 10,
        }
    )
    world.router().route(0, [world.drop_parquet("sub dir/a.parquet", table, row_group_size=3)], "q")
    rows = world.rows("deliveries")
    assert len(rows) == 14
    assert all(row["source"] == "sub dir/a.parquet" and row["partition"] == 0 for row in rows)
    assert all(row["message_id"] == (None if row["offset"] == 3 else f"ID:{row['offset']}") for row in rows)


def test_split_files_give_the_same_rows_as_whole_ones(world, monkeypatch):
    world.publish(1, red="color = 'red'", even="n / 2 * 2 = n", long="text LIKE '%77%'")
    messages = [
        {"properties": {"color": ("red", "blue")[i % 2], "n": i, "text": f"{i:020}"}} for i in range(3000)
    ]
    lines = [json.dumps(message) for message in messages]
    lines[10:10] = ["", "{", "  "]
    table = pa.table({name: [m["properties"][name] for m in messages] for name in ("color", "n", "text")})
    paths = [world.drop_json("a.jsonl", *lines), world.drop_parquet("b.parquet", table, row_group_size=100)]
    world.router(tasks=1).route(0, paths, "q")
    whole = world.deliveries()
    dead = [(row["source"], row["offset"]) for row in world.rows("dead-letters")]
    monkeypatch.setattr(splits, "_SMALLEST_SPLIT", 1000)
    world.router(tasks=5).route(1, paths, "q")
    twice = world.deliveries()
    assert twice == Counter({key: 2 * count for key, count in whole.items()})
    assert sum(whole.values()) > 5000
    assert [(row["source"], row["offset"]) for row in world.rows("dead-letters")] == dead * 2
    commits = [json.loads((world.output / "_commits" / f"{n}.json").read_text()) for n in (0, 1)]
    assert len(commits[1]["files"]) > len(commits[0]["files"])
    assert commits[0]["counts"] == commits[1]["counts"]


def test_an_empty_batch_publishes_nothing_and_without_subscriptions_all_is_unrouted(world):
    world.publish(1)
    router = world.router()
    assert router.route(0, [], "q").counts.messages == 0
    assert router.route(1, [world.drop_bytes("a.jsonl", b"")], "q").counts.messages == 0
    assert router.commits.batches() == [0, 1] and not world.rows("unrouted")
    paths = [world.drop_json("b.jsonl", RED, {}), world.drop_parquet("c.parquet", pa.table({"x": [1, 2, 3]}))]
    assert router.route(2, paths, "q").counts.unrouted == 5
    assert len(world.rows("unrouted")) == 5 and not world.deliveries()


def test_a_message_without_properties_goes_where_null_is_wanted(world):
    world.publish(1, null="color IS NULL", red="color = 'red'", all="")
    paths = [world.drop_json("a.jsonl", {}), world.drop_parquet("b.parquet", pa.table({"x": pa.nulls(1)}))]
    world.router().route(0, paths, "q")
    wanted = {(name, 0, id) for name in ("a.jsonl", "b.parquet") for id in ("null", "all")}
    assert {key[:3] for key in world.deliveries()} == wanted


def test_unrouted_messages_can_be_dropped_or_stop_the_job(world):
    world.publish(1, red="color = 'red'")
    path = world.drop_json("a.jsonl", BLUE)
    assert world.router(unrouted="drop").route(0, [path], "q").counts.unrouted == 1
    assert not world.rows("unrouted")
    with pytest.raises(CommitError, match="1 unrouted message"):
        world.router(unrouted="fail").route(1, [path], "q")
    assert world.router().commits.batches() == [0]


def test_a_repeated_batch_publishes_nothing_twice_and_with_other_files_is_refused(world):
    world.publish(1, red="color = 'red'")
    path = world.drop_json("a.jsonl", RED)
    first = world.router().route(0, [path], "q")
    world.publish(2, red="color = 'red'", more="color = 'red'")
    again = world.router().route(0, [path], "q")
    assert again.skipped and again.counts == first.counts and again.revision == 1
    with pytest.raises(CommitError, match=r"other inputs.*checkpoint"):
        world.router().route(0, [world.drop_json("b.jsonl", RED)], "q")
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 1)])
    assert len(world.accounting()) == 1


def test_a_new_revision_is_used_from_the_next_batch_on_and_an_older_one_is_refused(world):
    world.publish(3, red="color = 'red'")
    router = world.router()
    path = world.drop_json("a.jsonl", RED)
    router.route(0, [path], "q")
    world.publish(9, crimson="color = 'red'")
    assert router.route(1, [path], "q").revision == 9
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 3), ("a.jsonl", 0, "crimson", 9)])
    (world.snapshots / "manifest-9.json").unlink()
    with pytest.raises(PinError, match=r"newest revision .* is 3, but batch 1 .* revision 9"):
        world.router().route(2, [path], "q")


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_and_a_changed_registry_lose_and_repeat_nothing(tmp_path_factory, after):
    for at, kill in kills(after, least=20):
        world = World(tmp_path_factory.mktemp("crash"))
        world.publish(1, red="color = 'red'")
        paths = [world.drop_json("a.jsonl", RED, BLUE, "{"), world.drop_json("b.jsonl", RED)]
        router = world.router()
        with kill:
            router.route(0, paths, "q")
            router.commits.finish()
        pinned = Location.of(world.output / "pins" / "0.json").read_json()
        world.publish(2, red="color = 'red'", new="color = 'red'")
        again = world.router()
        again.route(0, paths, "q")
        revision = again.commits.read(0)["revision"]
        assert pinned is None or revision == pinned["revision"] == 1, at
        names = ["red"] if revision == 1 else ["red", "new"]
        expected = Counter((s, 0, name, revision) for s in ("a.jsonl", "b.jsonl") for name in names)
        assert world.deliveries() == expected, at
        assert len(world.rows("unrouted")) == len(world.rows("dead-letters")) == 1, at
        # A crash between commit and accounting leaves the line to the next start.
        world.router()
        assert [line["batch"] for line in world.accounting()] == [0], at
        assert list((world.output / "_staging").iterdir()) == [], at


def test_a_pinned_revision_that_is_gone_or_replaced_is_one_sentence(world):
    world.publish(1, red="color = 'red'")
    path = world.drop_json("a.jsonl", RED)
    with killed(1, [(source, "plan_in")], after=False):
        world.router().route(0, [path], "q")
    manifest = world.snapshots / "manifest-1.json"
    manifest.rename(world.root / "aside")
    with pytest.raises(PinError, match="batch 0 is pinned to revision 1"):
        world.router().route(0, [path], "q")
    world.publish(1, other="color = 'red'")
    with pytest.raises(PinError, match="now has another revision 1"):
        world.router().route(0, [path], "q")
    (world.root / "aside").replace(manifest)
    world.router().route(0, [path], "q")
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 1)])


def test_messages_unaccounted_for_are_never_committed(world, monkeypatch):
    world.publish(1, red="color = 'red'")
    monkeypatch.setattr(Sinks, "bury", lambda self, place, dead, records=None: setattr(
        self.counts, "messages", self.counts.messages + dead.count))  # fmt: skip
    with pytest.raises(CommitError, match="read 2 messages but accounts for 1"):
        world.router().route(0, [world.drop_json("a.jsonl", RED, "{")], "q")
    assert not world.deliveries()


def test_a_file_that_changes_after_the_plan_stops_the_batch(world, monkeypatch):
    world.publish(1, red="color = 'red'")
    path = world.drop_parquet("a.parquet", pa.table({"color": ["red"] * 4}))
    router = world.router()
    real = router.source.run

    def changed(tasks, work):
        pq.write_table(pa.table({"color": ["red"] * 3}), path)
        return real(tasks, work)

    router.source.run = changed
    with pytest.raises(CommitError, match=r"a\.parquet had 4 rows when planned and 3 when read"):
        router.route(0, [path], "q")


def test_accounting_is_rebuilt_from_the_commits(world):
    world.publish(1, red="color = 'red'")
    router = world.router()
    for batch in range(3):
        router.route(batch, [world.drop_json(f"{batch}.jsonl", RED)], "q")
    good = (world.output / "accounting.jsonl").read_text()
    for damaged in (good[:-20].encode(), b"", b"\xb9" + good[1:].encode()):
        (world.output / "accounting.jsonl").write_bytes(damaged)
        world.router()
        assert (world.output / "accounting.jsonl").read_text() == good


def test_a_folder_in_the_way_of_a_batch_is_not_overwritten(world):
    world.publish(1, red="color = 'red'")
    foreign = world.output / "deliveries" / "batch=0"
    foreign.mkdir(parents=True)
    (foreign / "mine").write_text("keep")
    router = world.router()
    router.route(0, [world.drop_json("a.jsonl", RED)], "q")
    for finish in (router.close, world.router):  # the end, and the next start
        with pytest.raises(CommitError, match="move it away"):
            finish()
    assert (foreign / "mine").read_text() == "keep"


def test_many_matches_a_message_are_written_in_slices(world, monkeypatch):
    monkeypatch.setattr("selectroute.spark.task.writer.SLICE", 7)
    monkeypatch.setattr("selectroute.spark.task.writer._ROW_GROUP", 5)
    world.publish(1, **{f"s{i}": "color IS NOT NULL" for i in range(10)})
    messages = [{"headers": {"JMSMessageID": f"ID:{i}"}, **RED} for i in range(6)]
    world.router(tasks=1).route(0, [world.drop_json("a.jsonl", *messages)], "q")
    assert world.deliveries() == Counter(("a.jsonl", i, f"s{s}", 1) for i in range(6) for s in range(10))
    assert all(row["message_id"] == f"ID:{row['offset']}" for row in world.rows("deliveries"))


def test_a_damaged_snapshot_is_a_snapshot_error_and_publishes_nothing(world):
    world.publish(1, red="color = 'red'")
    (segment,) = (world.snapshots / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(sr.SnapshotError):
        world.router().route(0, [world.drop_json("a.jsonl", RED)], "q")
    assert not world.deliveries()
