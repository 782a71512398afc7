"""Certificates for tests: an authority, and the certificates that it signs, made by the command `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.components import missing

PASSWORD = "password-of-a-key"


@dataclass(frozen=True)
class Certificate:
    """PEM texts; `key` as it is, `locked` encrypted with PASSWORD."""

    certificate: str
    key: str
    locked: str

    @property
    def both(self) -> str:
        return self.key + self.certificate


class Authority:
    """A certificate authority with its files in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            missing("the command openssl is not installed")
        self.folder = folder / name
        self.folder.mkdir()
        self._openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={name}"),
            *("-days", "2", "-addext", "keyUsage=critical,keyCertSign"),
        )

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> str:
        return self.file.read_text()

    def issue(self, name: str, hosts: str = "DNS:localhost") -> Certificate:
        """Sign a certificate for hosts, ``DNS:name,IP:address``."""
        key, request, signed = f"{name}.key", f"{name}.csr", f"{name}.pem"
        (self.folder / "extensions").write_text(f"subjectAltName={hosts}\n")
        self._openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        self._openssl(
            *("x509", "-req", "-in", request, "-out", signed, "-days", "2", "-extfile", "extensions"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        )
        self._openssl(
            *("pkcs8", "-topk8", "-in", key, "-out", f"{name}.locked", "-v2", "aes256"),
            *("-passout", f"pass:{PASSWORD}"),
        )
        return Certificate(*((self.folder / f"{name}.{end}").read_text() for end in ("pem", "key", "locked")))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
