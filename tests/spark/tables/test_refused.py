"""A table in a store that refuses a request of Delta's library, as when credentials have expired, or whose
answer ends too early.
"""

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from deltalake import DeltaTable, Transaction

from selectroute.spark.tables.delta import DeltaTables
from selectroute.spark.tables.delta_table import OutcomeTable
from selectroute.storage import DeniedError, Location
from selectroute.storage.local import LocalStorage
from selectroute.storage.patient import patient

EXPIRED = """Kernel error -> Generic S3 error
Error performing GET http://127.0.0.1:1/bucket/out/_delta_log/00000000000000000001.json
400 Bad Request
<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"""


class Remote(LocalStorage):
    """A folder of this machine as if it were remote."""

    @property
    def local(self):
        return False


class Refusing:
    """The library's table, whose log can't be read."""

    def update_incremental(self):
        raise OSError(EXPIRED)


def test_a_log_that_can_not_be_read_before_a_transaction(tmp_path):
    table = OutcomeTable(Location(Remote(), str(tmp_path)), "deliveries")
    table._table = Refusing()
    with pytest.raises(
        DeniedError, match=f"the Delta table {tmp_path} cannot take batch 0: the credentials have expired$"
    ):
        commit = dict.fromkeys(("revision", "digest", "counts", "committed"))
        table.append(
            Transaction("job", 0), [], {**commit, "batch": 0, "inputs": {"count": 0, "sha256": ""}}, False
        )
    assert table._table is None


CUT = """Kernel error -> Generic S3 error: Error getting list response body: HTTP error: request or response
body error: error reading a body from connection: end of file before message length reached"""


@pytest.mark.parametrize(
    "request_of_library, call",
    [
        ("__init__", lambda tables: tables.prepare()),
        ("transaction_version", lambda tables: tables.unpublished([0], [])),
        ("vacuum", lambda tables: tables.remove_strays()),
        ("get_add_actions", lambda tables: tables.live("deliveries")),
    ],
)
def test_what_the_stream_asks_the_library_is_asked_again_after_an_answer_was_cut(
    tmp_path, monkeypatch, request_of_library, call
):
    warnings = []
    output = patient(Location(Remote(), str(tmp_path)), warnings.append, lambda: False)
    tables = DeltaTables(output, "job")
    tables.prepare()
    answer, cuts = getattr(DeltaTable, request_of_library), [CUT]

    def cut_once(self, *args, **named):
        if cuts:
            raise OSError(cuts.pop())
        return answer(self, *args, **named)

    monkeypatch.setattr(DeltaTable, request_of_library, cut_once)
    call(tables)
    assert not cuts
    assert [text for text in warnings if text.endswith(": the stream waits")] == warnings != []
