"""What becomes of messages that nobody wants, by their topic."""

import pyarrow as pa
import pytest

from selectroute.spark.audit.audit import audit
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import CommitError, JobError, Unrouted
from selectroute.storage import Location
from tests.spark.storages import ON_EVERY_STORAGE, ON_HDFS_TOO

RULES = ("audit/#=keep", "audit/debug=drop", "#/debug=drop", "orders/+=fail")


def test_the_first_filter_that_takes_a_topic_counts_and_no_topic_has_the_default():
    policy = Unrouted.of("drop", RULES)
    wanted = {"audit/debug": "keep", "x/debug": "drop", "orders/eu": "fail"}
    wanted |= dict.fromkeys(["orders", "x", None], "drop")
    assert {topic: policy.policy(topic) for topic in wanted} == wanted
    assert Unrouted.of("fail", RULES).never_failing().policy("orders/eu") == "keep"
    assert Unrouted.of("fail").never_failing().policy(None) == "keep"


@pytest.mark.parametrize("rule", ["audit/#", "=keep", "a#=keep", "audit/#=burn", "audit/#="])
def test_a_rule_that_is_none_is_refused(world, rule):
    with pytest.raises(JobError, match=r"FILTER=POLICY|topic filter|keep, drop, fail"):
        world.job(unrouted_topics=(rule,))


def messages(*topics):
    return [{"properties": {"n": n}, **({} if t is None else {"topic": t})} for n, t in enumerate(topics)]


TOPICS = ("audit/debug", "x/debug", None, "audit", "x", "audit")
LISTED = [0, 3, 5]


@ON_EVERY_STORAGE
@pytest.mark.parametrize("kind", ["plain", "dictionary", "large"])
def test_topics_in_columns_are_looked_at_in_any_form_of_text(world, kind):
    world.publish(1, wanted="n = 4")
    topics = pa.array(TOPICS, pa.large_string() if kind == "large" else pa.string())
    table = pa.table(
        {
            "n": pa.array(range(6), pa.int32()),
            "@topic": topics.dictionary_encode() if kind == "dictionary" else topics,
        }
    )
    router = world.router(unrouted="drop", unrouted_topics=RULES)
    router.route(0, [world.drop_parquet("a.parquet", table)], "q")
    assert [row["offset"] for row in world.rows("unrouted")] == LISTED


@ON_EVERY_STORAGE
def test_messages_without_topics_have_the_default_of_all(world):
    world.publish(1, wanted="n = 4")
    router = world.router(unrouted="keep", unrouted_topics=("#=drop",))
    router.route(0, [world.drop_parquet("a.parquet", pa.table({"n": pa.array(range(6), pa.int32())}))], "q")
    assert [row["offset"] for row in world.rows("unrouted")] == [0, 1, 2, 3, 5]


@ON_EVERY_STORAGE
def test_a_topic_that_nobody_may_leave_unrouted_stops_the_job_and_others_do_not(world):
    world.publish(1, wanted="n = 0")
    router = world.router(unrouted="drop", unrouted_topics=("orders/#=fail",))
    router.route(0, [world.drop_json("a.jsonl", *messages("orders/1", "x"))], "q")
    with pytest.raises(CommitError, match="batch 1 has 1 unrouted message"):
        router.route(1, [world.drop_json("b.jsonl", *messages("x", "orders/1"))], "q")
    assert router.commits.batches() == [0]


@ON_HDFS_TOO
def test_only_what_is_kept_is_listed_and_an_audit_holds_the_list_against_the_policies(world):
    world.publish(1, wanted="n = 4")
    OutputFolder(world.job()).claim()
    router = world.router(unrouted="drop", unrouted_topics=RULES)
    router.route(0, [world.drop_json("a.jsonl", *messages(*TOPICS))], "q")
    commit = Location.of(world.output / "_commits" / "0.json")
    content = commit.read_json()
    assert (content["counts"]["unrouted"], content["counts"]["policies"]) == (5, {"keep": 3, "drop": 2})
    assert [row["offset"] for row in world.rows("unrouted")] == LISTED

    def found(**policies):
        content["counts"]["policies"] = policies
        commit.put_json(content)
        return [one.sentence for one in audit(world.output).findings if "unrouted" in one.sentence]

    assert found(keep=3, drop=2) == []
    assert found(keep=2, drop=3) == ["it counts 2 unrouted, but its files have 3 rows"]
    assert found(keep=3, drop=1) == ["it counts 5 unrouted messages, but 4 by their policy"]
