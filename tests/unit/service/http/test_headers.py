import pytest

from selectroute.service.http.headers import etag, is_minimal, revisions
from selectroute.service.http.problems import ProblemError


@pytest.mark.parametrize(
    ("header", "weak", "numbers"),
    [
        ('"7"', False, {7}),
        (' "7" , "8"', False, {7, 8}),
        ('W/"7"', False, set()),
        ('W/"7"', True, {7}),
        ('"other", "07", "-1", "7"', False, {7}),
        ('"' + "9" * 40 + '"', False, set()),
    ],
)
def test_etags_name_revisions(header, weak, numbers):
    assert revisions(header, "If-Match", weak=weak).numbers == numbers
    assert revisions(etag(7), "If-Match").numbers == {7}


def test_a_star_is_any_revision_and_no_header_is_none():
    assert 5 in revisions(" * ", "If-Match") and revisions(None, "If-Match") is None


@pytest.mark.parametrize("header", ["", " ", "7", '"7', '"7" "8"', "'7'", '"7",,'])
def test_what_is_no_etag_is_refused(header):
    with pytest.raises(ProblemError, match="If-Match is"):
        revisions(header, "If-Match")


@pytest.mark.parametrize(
    ("header", "minimal"),
    [
        ("return=minimal", True),
        ('wait=1, Return = "Minimal"; x=1', True),
        ("return=representation", False),
        (None, False),
    ],
)
def test_prefer(header, minimal):
    assert is_minimal(header) is minimal
