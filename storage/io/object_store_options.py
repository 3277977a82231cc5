# SPDX-License-Identifier: Apache-2.0
"""Which object store a location means, and how options and environment configure its client.

Locations: `s3://bucket/…` (`s3a://` is the same), `gs://bucket/…`, `az://container/…`,
`abfss://container@account.dfs.core.windows.net/…`.

Options of S3 may begin with `s3.`, `s3a.` or `fs.s3a.`; words are separated by `.` or `-`. What is
not given comes from the standard variables (`AWS_ACCESS_KEY_ID`, `AWS_REGION`,
`AWS_ENDPOINT_URL`, …) or from the machine's role. Options of the other two begin with `gs.` and
`az.`; they are those of the client library. Options of HDFS (`storage.io.hdfs`) begin with
`hdfs.webhdfs.`. Limits of requests begin with `store.`.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.options import values as option_values

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")

_LOCATION = re.compile(r"([A-Za-z0-9+.-]+)://([^/]+)(?:/(.*))?", re.DOTALL)
_SECRET = re.compile(
    r"(secret|token|password|passphrase|key|credential|sas|signature|authorization|^header\.)",
    re.IGNORECASE,
)
_PUBLIC = ("kms-key-id", "catalog-key", "lock-key-max-length")
_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=password=)[^&\s]+", re.IGNORECASE)
"""User and password of a URL; a password among the parameters of one."""
REDACTED = "********"

_S3_PREFIXES = ("fs.s3a.", "s3a.", "s3.")


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("text that is not empty")
    return value.strip()


def _count(value: str) -> int:
    return option_values.integer(value)


def _time(value: str) -> timedelta:
    return timedelta(milliseconds=option_values.duration_ms(value))


_S3_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "endpoint": ("endpoint", _text),
    "access-key": ("access_key_id", _text),
    "secret-key": ("secret_access_key", _text),
    "session-token": ("session_token", _text),
    "region": ("region", _text),
    "endpoint-region": ("region", _text),
    "path-style-access": ("path_style", option_values.boolean),
    "anonymous": ("skip_signature", option_values.boolean),
    "server-side-encryption": ("server_side_encryption", _text),
    "kms-key-id": ("sse_kms_key_id", _text),
}

_HDFS_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "hdfs.webhdfs.address": ("address", _text),
    "hdfs.webhdfs.user": ("user", _text),
    "hdfs.webhdfs.delegation-token": ("delegation_token", _text),
    "hadoop-conf-dir": ("hadoop_conf_dir", _text),
}

_CLIENT_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "store.max-retries": ("max_retries", _count, "6"),
    "store.retry-timeout": ("retry_timeout", _time, "30 s"),
    "store.request-timeout": ("timeout", _time, "60 s"),
    "store.connect-timeout": ("connect_timeout", _time, "5 s"),
}
_ALLOW_UNTESTED = "store.allow-untested"


@dataclasses.dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where something is in an object store.

    Attributes:
        scheme: `s3`, `gs`, `az` or `abfss`.
        root: URL of the bucket, without a slash at the end.
        key: what follows, without slashes around it; "" is the bucket itself.
    """

    scheme: str
    root: str
    key: str

    @property
    def path(self) -> str:
        """The whole location in its usual form."""
        return f"{self.root}/{self.key}" if self.key else self.root


def locate(location: str) -> StoreLocation:
    """Take a location apart.

    Raises:
        InvalidRequestError: no bucket is named, or it carries credentials.
    """
    match = _LOCATION.fullmatch(location.strip())
    if match is None:
        raise InvalidRequestError(
            "an object store location must name a bucket", hint="write s3://bucket/directory"
        )
    scheme = {"s3a": "s3", "abfs": "abfss"}.get(match[1].lower(), match[1].lower())
    authority = match[2]
    if scheme != "abfss" and ("@" in authority or ":" in authority):
        raise InvalidRequestError(
            "a bucket name contains `@` or `:`",
            hint="give credentials and the endpoint as options, not in the location",
        )
    return StoreLocation(scheme, f"{scheme}://{authority}", (match[3] or "").strip("/"))


def require_leave(location: StoreLocation, options: Mapping[str, str]) -> None:
    """Refuse a kind of store that is not tested, unless the options allow it.

    Raises:
        UnsupportedFeatureError: they do not.
    """
    if option_values.boolean(options.get(_ALLOW_UNTESTED, "false")):
        return
    condition = {"gs": "x-goog-if-generation-match: 0"}.get(location.scheme, "If-None-Match: *")
    raise UnsupportedFeatureError(
        "commits on this kind of store have never been tested",
        detail=f"they would depend on its conditional put (`{condition}`)",
        hint=f"use S3 or a mounted directory, or set `{_ALLOW_UNTESTED}` to true at your own risk",
        location=location.root,
    )


def client_settings(scheme: str, options: Mapping[str, str]) -> tuple[Any, Any]:
    """Settings of the client library: of the store, and of its HTTP client.

    Raises:
        InvalidOptionError: an option is unknown or malformed.
    """
    settings: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for name, (field, parse, default) in _CLIENT_OPTIONS.items():
        client[field] = _value(name, options.get(name, default), parse)
    for name, value in options.items():
        if name in _CLIENT_OPTIONS or name == _ALLOW_UNTESTED:
            continue
        field, parse = _field(scheme, name)
        settings[field] = _value(name, value, parse)
    return settings, client


def _field(scheme: str, name: str) -> tuple[str, Callable[[str], Any]]:
    if scheme == "s3":
        prefix = next((start for start in _S3_PREFIXES if name.startswith(start)), None)
        short = name[len(prefix) :].replace(".", "-") if prefix else ""
        if short in _S3_OPTIONS:
            return _S3_OPTIONS[short]
        raise _unknown(name, [f"s3.{option}" for option in _S3_OPTIONS])
    if scheme == "hdfs":
        if name in _HDFS_OPTIONS:
            return _HDFS_OPTIONS[name]
        raise _unknown(name, list(_HDFS_OPTIONS))
    prefixes = {"gs": ("gs.",), "az": ("az.",), "abfss": ("az.", "abfs.")}[scheme]
    prefix = next((start for start in prefixes if name.startswith(start)), None)
    if prefix is None:
        raise InvalidOptionError(
            "unknown store option", key=name, hint=f"options of this store begin with {prefixes[0]}"
        )
    return name[len(prefix) :].replace("-", "_").replace(".", "_"), _text


def _unknown(name: str, names: list[str]) -> InvalidOptionError:
    names = [*names, *_CLIENT_OPTIONS]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "known are " + ", ".join(names)
    return InvalidOptionError("unknown store option", key=name, hint=hint)


def _value(name: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        masked = redacted_options({name: value})[name]
        raise InvalidOptionError(
            "invalid value of a store option", detail=str(error), key=name, value=masked
        ) from None


def redacted_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options safe to log: values that may be secret are masked."""
    return {
        name: REDACTED
        if _SECRET.search(name) and not name.endswith(_PUBLIC)
        else redacted_text(value)
        for name, value in options.items()
    }


def redacted_text(text: str) -> str:
    """A text, such as an address, with credentials in URLs masked."""
    return _IN_URL.sub(REDACTED, text)
