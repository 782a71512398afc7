"""A table in a store that refuses a request of Delta's library, as when credentials have expired."""

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from selectroute.spark.tables.delta_table import Append, OutcomeTable
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

    def version(self):
        return -1

    def transaction_version(self, _):
        raise OSError(EXPIRED)


def test_a_log_that_can_not_be_read_before_a_transaction(tmp_path):
    table = OutcomeTable(Location(Remote(), str(tmp_path)), "deliveries")
    table._table = Refusing()
    with pytest.raises(
        DeniedError, match=f"the Delta table {tmp_path} cannot be read: the credentials have expired$"
    ):
        table.append(Append("job", 0, [], 1, 0, {}))
    assert table._is_stale
