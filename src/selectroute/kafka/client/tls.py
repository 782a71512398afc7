"""TLS of a client: certificates and keys in PEM, from files or from the settings themselves.

Files are read when settings are: once, by the driver, before a stream starts. A `Tls` holds their text and is
pickled to other processes; each builds its own `ssl.SSLContext`, which cannot be pickled.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from selectroute.kafka.client.values import SettingError, choice, listed

SETTINGS: Final = frozenset(
    {
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Settings that `Tls.of` reads."""

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_STORES: Final = ("PEM", "JKS", "PKCS12")
_MOST_BYTES: Final = 8 << 20

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATE: Final = "CERTIFICATE"
_KEY: Final = "PRIVATE KEY"

_KEYS_OF_PKCS12: Final = "`openssl pkcs12 -in {} -out keys.pem`"
_TRUST_COMMAND: Final = "`keytool -list -rfc -keystore FILE > trusted.pem`"
_KEY_COMMANDS: Final = {
    "PKCS12": _KEYS_OF_PKCS12.format("FILE"),
    "JKS": "`keytool -importkeystore -srckeystore FILE -destkeystore keys.p12 -deststoretype PKCS12` and "
    + _KEYS_OF_PKCS12.format("keys.p12"),
}


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates and checks of a TLS connection.

    Attributes:
        trusted: trusted certificates in PEM; empty for those of the system.
        chain: certificates of the client in PEM, its own first; empty for none.
        key: private key of the client in PEM.
        key_password: password of an encrypted key.
        check_hostname: whether the certificate of a server must be one for its host name.
        versions: accepted versions of TLS.
    """

    trusted: str = field(default="", repr=False)
    chain: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = tuple(_VERSIONS)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Tls:
        """Read the settings ``ssl.…``, and the files that they name.

        Raises:
            SettingError: a value is not valid, a file can't be read or is a store of Java.
        """
        trust, certificates = _store(options, "ssl.truststore", "ssl.truststore.certificates")
        anchors = _blocks(certificates, _CERTIFICATE)
        if certificates and not anchors:
            raise SettingError(trust, "has no certificate in PEM")
        own, keys = _store(options, "ssl.keystore", "ssl.keystore.certificate.chain")
        chain = _blocks(keys, _CERTIFICATE)
        key = _blocks(options.get("ssl.keystore.key", keys), _KEY)
        if keys and not chain:
            raise SettingError(own, "has no certificate in PEM")
        if key and not chain:
            raise SettingError("ssl.keystore.key", "needs ssl.keystore.certificate.chain")
        if chain and not key:
            raise SettingError(
                "ssl.keystore.key" if own == "ssl.keystore.certificate.chain" else own,
                "has no private key in PEM",
            )
        made = cls(
            anchors,
            chain,
            key,
            options.get("ssl.key.password", ""),
            _checks_hostname(options),
            _versions(options),
        )
        made.context(trust, own)
        return made

    def context(
        self, trust: str = "ssl.truststore.certificates", own: str = "ssl.keystore.certificate.chain"
    ) -> ssl.SSLContext:
        """Return a new context of these certificates.

        Args:
            trust: setting that an invalid trusted certificate is the fault of.
            own: setting that an invalid certificate or key of the client is the fault of.

        Raises:
            SettingError: a certificate or the key is not valid, or the password of the key is wrong.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname
        context.minimum_version = min(_VERSIONS[name] for name in self.versions)
        context.maximum_version = max(_VERSIONS[name] for name in self.versions)
        if self.trusted:
            try:
                context.load_verify_locations(cadata=self.trusted)
            except (ssl.SSLError, TypeError, ValueError):
                raise SettingError(trust, "has a certificate that is not valid") from None
            # As in Java, each of these certificates is trusted itself, not only those that sign themselves.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        else:
            context.load_default_certs()
        if self.chain:
            with _file(f"{self.key}{self.chain}") as name:
                try:
                    # With a password, even an empty one, OpenSSL never asks for it on a terminal.
                    context.load_cert_chain(name, password=self.key_password)
                except (ssl.SSLError, ValueError):
                    raise SettingError(
                        own,
                        "can't be loaded: the key is not that of its first certificate, or ssl.key.password "
                        "is wrong or missing",
                    ) from None
        return context


def _store(options: Mapping[str, str], store: str, inline: str) -> tuple[str, str]:
    """Return the setting that gives a trust store or key store, and its text, which is empty without one."""
    location = f"{store}.location"
    kind = choice(f"{store}.type", options.get(f"{store}.type", "PEM"), _STORES)
    given = [name for name in (location, inline) if options.get(name, "").strip()]
    if not given:
        return inline, ""
    if len(given) == 2:
        raise SettingError(location, f"and {inline} are both given: give one of them")
    text = _text(location, options[location].strip(), kind, store) if given == [location] else options[inline]
    if options.get(f"{store}.password"):
        raise SettingError(
            f"{store}.password",
            "does not apply to certificates in PEM: leave it out (an encrypted key has ssl.key.password)",
        )
    return given[0], text


def _text(setting: str, file: str, kind: str, store: str) -> str:
    """Return the text of a PEM file. A store of Java is refused, whatever its type is said to be."""
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SettingError(setting, f"names a file that is larger than {_MOST_BYTES:,} bytes")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise SettingError(setting, f"names a file that can't be read: {reason}") from None
    if data.startswith((b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")):
        kind = "JKS"
    elif data.startswith(b"\x30"):
        kind = "PKCS12"
    elif b"-----BEGIN " in data:
        return data.decode("latin-1")
    if kind == "PEM":
        raise SettingError(setting, "has no certificate in PEM")
    command = _TRUST_COMMAND if store == "ssl.truststore" else _KEY_COMMANDS[kind]
    raise SettingError(
        setting,
        f"is a {kind} store, which only Java reads: convert it with {command}, and set {store}.type=PEM",
    )


def _blocks(text: str, kind: str) -> str:
    """Return the PEM blocks of a kind, with their lines as OpenSSL needs them: those in a properties file
    often have spaces in place of line ends.
    """
    found = []
    for label, body in _BLOCK.findall(text):
        if label == kind or (kind == _KEY and label.endswith(f" {_KEY}")):
            # The header lines of an encrypted key in the traditional format must stay as they are.
            lines = body.strip() if ":" in body else "\n".join(textwrap.wrap("".join(body.split()), 64))
            found.append(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    return "".join(found[:1] if kind == _KEY else found)


def _checks_hostname(options: Mapping[str, str]) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    algorithm = options.get(name, "https").strip()
    if algorithm.casefold() not in ("", "https"):
        raise SettingError(name, "must be https, or empty to accept a certificate for another host")
    return bool(algorithm)


def _versions(options: Mapping[str, str]) -> tuple[str, ...]:
    name = "ssl.enabled.protocols"
    if not options.get(name, "").strip():
        return tuple(_VERSIONS)
    given = {one.strip() for one in options[name].split(",")} - {""}
    if not given or given - set(_VERSIONS):
        raise SettingError(name, f"must be {listed(_VERSIONS)}, or both with a comma")
    return tuple(one for one in _VERSIONS if one in given)


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Give a text a file name for a moment, in memory where the system can: OpenSSL reads keys from files."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        memory = os.memfd_create("key")
        try:
            with open(memory, "w", encoding="latin-1", closefd=False) as file:
                file.write(text)
            yield f"/proc/self/fd/{memory}"
        finally:
            os.close(memory)
    else:
        with tempfile.NamedTemporaryFile("w", encoding="latin-1") as file:  # only this user can read it
            file.write(text)
            file.flush()
            yield file.name
