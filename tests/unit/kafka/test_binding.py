import json

import pytest

from selectroute.kafka.binding import BoundProperty, KafkaBinding, KafkaBindingError, PropertySource


@pytest.mark.parametrize(
    ("text", "name", "type_", "source"),
    [
        ("weight:int", "weight", "int", PropertySource("header", "weight")),
        ("kind=type", "kind", "string", PropertySource("header", "type")),
        ("a:long=header:$x", "a", "long", PropertySource("header", "$x")),
        ("a=x=y:z", "a", "string", PropertySource("header", "x=y:z")),
        (
            "price:double=$.order.price",
            "price",
            "double",
            PropertySource("body", "$.order.price", ("order", "price")),
        ),
        ("a=$", "a", "string", PropertySource("body", "$", ())),
        ("a=$[0]['b c'].d", "a", "string", PropertySource("body", "$[0]['b c'].d", (0, "b c", "d"))),
        ("customer=@key", "customer", "string", PropertySource("key")),
        ("n:long=@key", "n", "long", PropertySource("key")),
        ("JMSTimestamp=@timestamp", "JMSTimestamp", "long", PropertySource("timestamp")),
        ("part=@partition", "part", "int", PropertySource("partition")),
        ("at=@offset", "at", "long", PropertySource("offset")),
        ("from=@topic", "from", "string", PropertySource("topic")),
        ("JMSPriority=prio", "JMSPriority", "int", PropertySource("header", "prio")),
        ("JMSMessageID:bytes", "JMSMessageID", "bytes", PropertySource("header", "JMSMessageID")),
        ("@topic=mqtt", "@topic", "string", PropertySource("header", "mqtt")),
        ("@id=$.id", "@id", "string", PropertySource("body", "$.id", ("id",))),
    ],
)
def test_a_binding_is_a_type_and_a_source(text, name, type_, source):
    assert KafkaBinding.of([text]).field(name) == BoundProperty(type_, source)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a valid binding"),
        (":int", "is not a valid binding"),
        ("weight:integer", "'weight' cannot be 'integer': did you mean `int`?"),
        ("weight:", "is one of boolean"),
        ("JMSPriority:string", "'JMSPriority' is always of type int"),
        ("JMSCorrelationID:int", "always of type string"),
        ("a=@nothing", "'a': '@nothing' is not a valid source"),
        ("a=", "the source is empty"),
        ("a=header:", "the source is empty"),
        ("a=$x", "is not a valid source"),
        ("a=$.", "is not a valid path"),
        ("a=$.x[", "is not a valid path"),
        ("a=$.x[-1]", "is not a valid path"),
        ("a:string=@timestamp", "of type long, not string"),
        ("@topic:int=x", "always of type string"),
        ("@topic", "'@topic' can't be bound"),
        ("@body=$.x", "can't be bound"),
    ],
)
def test_what_is_no_binding_is_one_sentence(text, said):
    with pytest.raises(KafkaBindingError) as error:
        KafkaBinding.of([text])
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_name_is_bound_once():
    with pytest.raises(KafkaBindingError, match="'a' is bound twice"):
        KafkaBinding.of(["a:int", "a=b"])


def test_what_is_not_bound_is_the_header_of_its_name():
    binding = KafkaBinding.of(["kind=type", "weight:int", "price=$.price"])
    assert binding.field("color") == BoundProperty("string", PropertySource("header", "color"))
    assert binding.field("JMSRedelivered") == BoundProperty(
        "boolean", PropertySource("header", "JMSRedelivered")
    )
    assert [binding.is_property(name) for name in ("color", "weight", "kind", "type", "price")] == [
        *(True, True, False, False, False),
    ]


def test_topics_are_divided_by_a_character_that_they_may_have():
    assert KafkaBinding().topic("cars.eu") == "cars.eu"
    assert KafkaBinding(separator=".").topic("cars.eu-1") == "cars/eu-1"
    for separator in ("/", "", "..", "x"):
        with pytest.raises(KafkaBindingError, match="separator"):
            KafkaBinding(separator=separator)


def test_a_binding_survives_json():
    texts = ["weight:int", "kind=header:@x", "price:double=$.a['b.c'][0]", "@topic=mqtt", "t:long=@timestamp"]
    binding = KafkaBinding.of(texts, separator="_")
    assert KafkaBinding.from_dict(json.loads(json.dumps(binding.to_dict()))) == binding
    assert KafkaBinding.from_dict({}) == KafkaBinding()
    assert KafkaBinding.from_dict({"fields": {"a": {}}}).field("a") == BoundProperty(
        "string", PropertySource("header", "a")
    )


@pytest.mark.parametrize(
    "data",
    [
        {"columns": {}},
        {"fields": []},
        {"separator": 7},
        {"fields": {"a": "int"}},
        {"fields": {"a": {"type": 1}}},
        {"fields": {"a": {"kind": "int"}}},
        {"fields": {"a": {"type": "number"}}},
    ],
)
def test_other_json_is_a_sentence(data):
    with pytest.raises(KafkaBindingError):
        KafkaBinding.from_dict(data)
