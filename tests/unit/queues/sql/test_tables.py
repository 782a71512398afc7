"""Messages as rows and keys of a database."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from hypothesis import given

from selectroute.queues.lookup import Match
from selectroute.queues.message.message import Descriptor, properties_of, text_of
from selectroute.queues.message.record import DESCRIPTOR_FIELDS, Field, StoredMessage
from selectroute.queues.sql.tables import digest_of
from selectroute.store.errors import DamagedError
from tests.support.strategies import messages


@given(messages())
def test_properties_come_back_as_they_were(message):
    kept = {name: value for name, value in message.properties.items() if value is not None}
    assert dict(properties_of(text_of(kept))) == kept


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"a": {}}', '{"a": {"type": "int", "value": "x"}}', "[" * 100_000]
)
def test_properties_that_are_damaged_are_said_to_be(text):
    with pytest.raises(DamagedError, match="properties of a message"):
        properties_of(text)


def test_keys_that_differ_have_other_digests():
    keys = [("a", "b"), ("ab",), ("a",), (b"a",), (1.0,), (-1.0,), (("true",),), (("float", 1.0),), ("", "a")]
    assert len({digest_of(one) for one in keys}) == len(keys)
    assert digest_of(("a", 1.0)) == digest_of(("a", 1.0))


def test_a_record_begins_with_the_fields_of_a_descriptor():
    assert StoredMessage._fields[:DESCRIPTOR_FIELDS] == Descriptor._fields[:-1]
    assert [StoredMessage._fields[field] for field in Field] == [field.name.lower() for field in Field]
    assert Match._fields[: len(Field)] == StoredMessage._fields[: len(Field)]
