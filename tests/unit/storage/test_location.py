"""URLs and paths as locations."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from selectroute.durable.disk import DamagedFileError
from selectroute.storage import Location, StorageError, UnknownSchemeError
from selectroute.storage.local import LocalStorage


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/out", "/data/out"),
        ("/data/out/", "/data/out"),
        ("file:///data/with%20space", "/data/with space"),
        ("file:/data/out", "/data/out"),
        ("FILE:///data", "/data"),
        ("s3://bucket/out", "s3://bucket/out"),
        ("s3://bucket/out/", "s3://bucket/out"),
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket//out/./x", "s3a://bucket/out/x"),
        ("gs://bucket/100%", "gs://bucket/100%"),
        *[("abfss://container@account.dfs.core.windows.net/a",) * 2],
    ],
)
def test_a_location_is_shown_as_users_write_it(text, shown):
    assert str(Location.of(text)) == shown


def test_a_relative_path_is_of_the_working_directory_also_when_that_has_changed(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert Location.of("out").path == tmp_path / name / "out"
        assert Location.of(Path("out")) == Location.of(tmp_path / name / "out")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://host/x", "'ftp' is not known; it is one of file, s3, gs, az, abfss, hdfs"),
        ("s3:///x", "names no bucket: s3://BUCKET/FOLDER"),
        ("s3://bucket/../x", "must not have '..'"),
    ],
)
def test_a_url_that_can_not_be_used_is_named(text, reason):
    with pytest.raises(UnknownSchemeError, match=text.replace("?", ".")) as error:
        Location.of(text)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://KEY:geheim@bucket/out",
        "s3://geheim@bucket/out",
        "hdfs://user:geheim@namenode:8020/out",
        "abfss://container:geheim@account.dfs.core.windows.net/a",
        "az://container/out?sv=2026&sig=geheim",
        "https://account.blob.core.windows.net/container?SIG=geheim",
        "s3://bucket/out?X-Amz-Credential=a&X-Amz-Signature=geheim",
    ],
)
def test_a_url_with_credentials_is_refused_and_they_are_not_shown(text):
    with pytest.raises(UnknownSchemeError, match="must not have credentials") as error:
        Location.of(text)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize("text", ["s3://bucket/a@b/c?d", "hdfs://namenode:8020/a:b@c", "/data/a:b@c?sig=x"])
def test_what_only_looks_like_credentials_is_part_of_a_name(text):
    assert str(Location.of(text)) == text


@pytest.mark.parametrize("root", ["/data", "s3://bucket"])
def test_parts_of_a_location(root):
    file = Location.of(root) / "out" / "_commits/7.json"
    assert (file.name, file.stem, str(file.parent)) == ("7.json", "7", f"{root}/out/_commits")
    assert file.is_in(Location.of(f"{root}/out")) and not file.is_in(Location.of(f"{root}/o"))
    assert file.is_in(Location.of(root)) and not file.is_in(Location.of("gs://bucket"))
    assert file.relative_to(Location.of(f"{root}/out")) == "_commits/7.json"
    assert file == Location.of(f"{root}/out/_commits/7.json")
    assert hash(file) == hash(Location.of(f"{root}/out/_commits/7.json"))


def test_a_remote_location_has_no_path():
    with pytest.raises(OSError, match="s3://bucket/x is not on a mounted file system"):
        _ = Location.of("s3://bucket/x").path


def test_json_that_has_changed_is_damaged(tmp_path):
    file = Location.of(tmp_path / "x.json")
    file.put_json({"revision": 12})
    assert file.read_json() == {"revision": 12}
    file.put(file.read().replace(b"12", b"13"))
    with pytest.raises(DamagedFileError, match=r"x\.json is damaged"):
        file.read_json()


@dataclass(frozen=True)
class Careless(LocalStorage):
    """Storage that ignores a condition, as some stores that speak S3 do."""

    local = False
    ignored: str

    def put_new(self, key, data):
        self.put(key, data) if self.ignored == "If-None-Match" else super().put_new(key, data)

    def replace(self, key, data, version):
        if self.ignored == "If-None-Match":
            return super().replace(key, data, version)
        self.put(key, data)
        return version


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_storage_that_ignores_conditions_is_refused(tmp_path, ignored):
    folder = Location(Careless(ignored), str(tmp_path))
    with pytest.raises(StorageError, match=rf"can't be used: its storage overwrites .*\({ignored}\)"):
        folder.check_writable()
    assert [*tmp_path.iterdir()] == []
