"""What can be registered, field by field."""

from __future__ import annotations

import pytest

import selectroute as sr
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import Destination, SubscriptionSpec
from selectroute.registry.specification import checked

QUEUE = Destination("queue", "out")


@pytest.mark.parametrize(
    ("spec", "seltype"),
    [
        (SubscriptionSpec(), "NONE"),
        (SubscriptionSpec("a = 1"), "STANDARD"),
        (SubscriptionSpec("a = 1", seltype="STANDARD"), "STANDARD"),
        (SubscriptionSpec("//x", dialect="ibm-mq", seltype="EXTENDED"), "EXTENDED"),
        (SubscriptionSpec(destination=QUEUE, labels={"a": ""}, name="n" * 255), "NONE"),
        (SubscriptionSpec(destination=Destination("queue", "A.b/c_d%")), "NONE"),
        (SubscriptionSpec(labels={f"{n}": "v" * 255 for n in range(64)}), "NONE"),
    ],
)
def test_the_type_of_a_selector_follows_from_it(spec, seltype):
    assert checked(spec).seltype == seltype
    assert checked(checked(spec)) == checked(spec)


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        (SubscriptionSpec("a = 1", seltype="NONE"), "/seltype"),
        (SubscriptionSpec("", seltype="STANDARD"), "/seltype"),
        (SubscriptionSpec("", seltype="EXTENDED"), "/seltype"),
        (SubscriptionSpec("a = 1", seltype="EXTENDED"), "/seltype"),
        (SubscriptionSpec("a = 1", seltype="OTHER"), "/seltype"),
        (SubscriptionSpec(dialect="sql"), "/dialect"),
        (SubscriptionSpec(topic="a\x00"), "/topic"),
        (SubscriptionSpec(name=""), "/name"),
        (SubscriptionSpec(name="n" * 256), "/name"),
        (SubscriptionSpec(name="a\nb"), "/name"),
        (SubscriptionSpec(name="\ud800"), "/name"),
        (SubscriptionSpec("\ud800", seltype="EXTENDED"), "/selector"),
        (SubscriptionSpec(labels={f"{n}": "" for n in range(65)}), "/labels"),
        (SubscriptionSpec(labels={"": "x"}), "/labels/"),
        (SubscriptionSpec(labels={"a/b": "x" * 256}), "/labels/a~1b"),
        (SubscriptionSpec(labels={"a=b": "x"}), "/labels/a=b"),
        (SubscriptionSpec(labels={"a": "\x7f"}), "/labels/a"),
        (SubscriptionSpec(destination=Destination("none", "x")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("mail")), "/destination/kind"),
        (SubscriptionSpec(destination=Destination("mail", "out")), "/destination/kind"),
        (SubscriptionSpec(destination=Destination("kafka", "a b")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("kafka", "..")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("kafka", "..?grouping=message")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("kafka", "?grouping=message")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("kafka", "a?grouping=")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("queue", "A?grouping=message")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("queue")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("queue", "")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("queue", "A B")), "/destination/name"),
        (SubscriptionSpec(destination=Destination("queue", "Q" * 49)), "/destination/name"),
        (SubscriptionSpec(destination=Destination("mail")), "/destination/kind"),
    ],
)
def test_a_field_that_cannot_be_is_named(spec, pointer):
    with pytest.raises(InvalidSpecError) as caught:
        checked(spec)
    assert caught.value.pointer == pointer


def test_a_topic_may_have_a_grouping_and_nothing_else():
    for name in ("cars", "cars?grouping=message", "cars?grouping=delivery", f"{'t' * 249}?grouping=message"):
        spec = checked(SubscriptionSpec(destination=Destination("kafka", name)))
        assert spec.destination.text == f"kafka:{name}"
    for name in ("cars?grouping=both", "cars?compression=zstd", "cars?", "cars?grouping=message&a=b"):
        with pytest.raises(InvalidSpecError, match=r"after a topic may follow \?grouping=delivery or "):
            checked(SubscriptionSpec(destination=Destination("kafka", name)))


@pytest.mark.parametrize("limits", [sr.Limits(), sr.Limits(length=100)])
def test_a_selector_is_checked_within_the_limits(limits):
    text = "a = '" + "x" * 200 + "'"
    if limits.length > 200:
        assert checked(SubscriptionSpec(text), limits).selector == text
    else:
        with pytest.raises(sr.InvalidSelectorError) as caught:
            checked(SubscriptionSpec(text), limits)
        assert caught.value.kind == "too-long"


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        ([], ""),
        (None, ""),
        ({"x": 1}, "/x"),
        ({"a/b~": 1}, "/a~1b~0"),
        ({"selector": []}, "/selector"),
        ({"labels": []}, "/labels"),
        ({"labels": {"a": 1}}, "/labels/a"),
        ({"destination": "queue"}, "/destination"),
        ({"destination": {"kind": 1}}, "/destination/kind"),
        ({"destination": {"kind": "queue", "name": 1}}, "/destination/name"),
        ({"destination": {"kind": "queue", "path": "/etc"}}, "/destination/path"),
    ],
)
def test_data_of_another_form_is_named(data, pointer):
    with pytest.raises(InvalidSpecError) as caught:
        SubscriptionSpec.from_json(data)
    assert caught.value.pointer == pointer


def test_a_specification_survives_json():
    for spec in (
        SubscriptionSpec(),
        SubscriptionSpec("a = 1", "t/#", "ibm-mq", "STANDARD", "n", QUEUE, {"a": "b"}),
    ):
        assert SubscriptionSpec.from_json(spec.to_json()) == spec
