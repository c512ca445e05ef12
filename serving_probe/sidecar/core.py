"""The sidecar's vocabulary: how it is configured, and who sent a request."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from serving_probe.emit import TelemetryConfig
from serving_probe.errors import ProbeError

REQUEST_ID: Final = "X-Request-Id"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
ATTEMPT: Final = "X-Tokenmill-Attempt"
TENANT_ID: Final = "X-Tenant-Id"
SLO_CLASS: Final = "X-Slo-Class"
INTENDED_START: Final = "X-Intended-Start-Unix-Nano"
CONVERSATION_ID: Final = "X-Conversation-Id"


class ProbeConfig(BaseModel):
    """Where the sidecar listens, what it stands before, and where telemetry goes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    upstream: Annotated[str, Field(description="base URL of the serving system")]
    listen: Annotated[str, Field(description="host:port; port 0 takes a free one")] = (
        "127.0.0.1:8200"
    )
    telemetry: TelemetryConfig = TelemetryConfig()
    service_name: Annotated[str, Field(min_length=1)] = "tokenmill-probe"
    tenant_salt: Annotated[
        SecretStr | None,
        Field(description="salts the hash of API keys; without one a new salt at every start"),
    ] = None
    asks_usage: Annotated[
        bool, Field(description="ask the upstream for usage where the caller did not")
    ] = True
    connect_timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    drain_s: Annotated[float, Field(ge=0, le=600, description="what SIGTERM leaves running")] = 30.0

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        parts = urlsplit(self.upstream)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"upstream must be an http:// or https:// URL, not {self.upstream!r}")
        if parts.query or parts.fragment or parts.username:
            raise ValueError("upstream must have no query, fragment or user name")
        _split(self.listen)
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return _split(self.listen)

    @classmethod
    def create(cls, **fields: object) -> Self:
        """A checked config; raises `ProbeError` with one sentence on any fault."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "probe"
            raise ProbeError(f"{where}: {first['msg'].removeprefix('Value error, ')}.") from error


def tenant_of(headers: Mapping[str, str], salt: bytes) -> str | None:
    """The named tenant, else a salted hash of the API key, else None: unknown."""
    if named := headers.get(TENANT_ID):
        return named
    key = headers.get("Authorization") or headers.get("X-Api-Key") or headers.get("Api-Key")
    if not key:
        return None
    return "key-" + hmac.new(salt, key.encode(), hashlib.sha256).hexdigest()[:16]


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"listen must be host:port with a port up to 65535, not {listen!r}")
    return host.strip("[]") or "0.0.0.0", int(port)
