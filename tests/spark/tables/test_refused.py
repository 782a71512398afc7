"""A table in a store that refuses a request of Delta's library, as when credentials have expired."""

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from deltalake import Transaction

from selectroute.spark.tables.delta_table import OutcomeTable
from selectroute.storage import DeniedError, Location
from selectroute.storage.local import LocalStorage

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
