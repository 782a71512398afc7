from selectroute.kafka.record import delivery_id


def test_an_id_says_which_message_and_for_whom():
    assert delivery_id("cars", 3, 17, "sub-1") == "cars/3/17/sub-1"
