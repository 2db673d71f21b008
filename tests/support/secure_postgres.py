"""A PostgreSQL that takes nothing but TLS and passwords from all but its superuser, and from
``tls_client`` a certificate instead of a password.

It comes from Debian's packages, since the embedded one is built without TLS. Its certificate is for
``localhost`` alone, so that 127.0.0.1 is a wrong name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from heartbeat_stream.local.postgres import PostgresServer, unprivileged_uid
from heartbeat_stream.local.scratch import ScratchDirectory
from tests.support.certificates import Authority

__all__ = ["CERTIFICATE_ROLE", "SecurePostgres"]

#: The role that shows a certificate of its name.
CERTIFICATE_ROLE = "tls_client"

HBA = """\
local   all all                trust
host    all postgres 127.0.0.1/32 trust
hostssl all tls_client 127.0.0.1/32 cert
hostssl all all      127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class SecurePostgres:
    """The running server, and the authority that signed its certificate."""

    server: PostgresServer
    authority: Authority

    @property
    def admin_url(self) -> str:
        """The superuser's, for the tests themselves."""
        return self.server.url

    def url(
        self,
        user: str,
        password: str,
        *,
        host: str = "localhost",
        ca: Path | None = None,
        database: str = "postgres",
    ) -> str:
        """A URL with sslmode=verify-full, which believes this authority."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        place = f"{login}@{host}:{self.server.port}/{database}"
        return f"postgresql://{place}?sslmode=verify-full&sslrootcert={ca or self.authority.file}"


def debian_programs() -> Path | None:
    """The newest PostgreSQL of Debian's packages; None where there is none."""
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    versions = sorted((int(path.parts[-3]), path.parents[1]) for path in found)
    return versions[-1][1] if versions else None


@pytest.fixture(scope="session")
def secure_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePostgres]:
    """The server. Use names of your own for roles, databases and tables."""
    programs = debian_programs()
    if programs is None:
        report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        report("PostgreSQL is not installed: `make test-services` installs it")
    authority = Authority(tmp_path_factory.mktemp("secure-postgres"))
    scratch = ScratchDirectory("postgres")
    files = scratch.subdirectory("tls")
    issued = authority.issue("postgres", "localhost")
    (files / "hba.conf").write_text(HBA)
    for name, file in (
        ("server.pem", issued.certificate),
        ("server.key", issued.key),
        ("clients.pem", authority.file),
    ):
        shutil.copy(file, files / name)
    for file in files.iterdir():
        file.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(file, unprivileged_uid(), -1)
    settings = {
        "ssl": "on",
        "ssl_cert_file": str(files / "server.pem"),
        "ssl_key_file": str(files / "server.key"),
        "ssl_ca_file": str(files / "clients.pem"),
        "hba_file": str(files / "hba.conf"),
    }
    try:
        with PostgresServer(scratch=scratch, settings=settings, programs=programs) as server:
            yield SecurePostgres(server, authority)
    finally:
        scratch.close()
