from __future__ import annotations

import pytest

from selectroute.kafka.headers import DeliveryError, Place, delivery_id

PLACES = [Place("a-1.b_c", 0, 0, 0), Place("j", -7, 12, 10**17), Place("x" * 128, 5, 1, 9)]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_survives_its_header(place):
    assert Place.of(str(place).encode()) == place


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"job", b"job/1/2", b"job/1/2/-3", b"job/1/2/3/4", b"job/x/0/0", b"/1/2/3", b"a/1/2/3\n"),
        *(b"\xff/1/2/3", b"x" * 129 + b"/1/2/3", b"j/" + b"9" * 19 + b"/0/0", "j/١/0/0".encode()),
    ],
)
def test_anything_else_is_a_sentence_that_shows_it(header):
    with pytest.raises(DeliveryError, match="job/batch/task/number") as error:
        Place.of(header)
    assert str(error.value).isprintable() and len(str(error.value)) < 400


def test_an_id_says_which_message_and_for_whom():
    assert delivery_id("cars", 3, 17, "sub-1") == "cars/3/17/sub-1"
