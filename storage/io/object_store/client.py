# SPDX-License-Identifier: Apache-2.0
"""Making the client library's object for a bucket, from options and the environment.

What options there are is in `object_store_options`, which needs no client library.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from obstore.store import ObjectStore, S3Store, from_url

from storage.io.object_store.options import StoreLocation, client_settings, require_leave

__all__ = ["connect"]

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def connect(
    location: StoreLocation, options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[ObjectStore, bool]:
    """A client of a bucket; nothing is sent yet.

    Args:
        location: any location in the bucket.
        options: see `object_store_options`.
        environ: None: the process's.

    Returns:
        The client, and whether the store is one whose conditional put must be tried out first
        (an S3 of somebody else's make).

    Raises:
        InvalidOptionError: an option is unknown or malformed.
        UnsupportedFeatureError: a store that is not tested, without leave to use it.
    """
    environ = os.environ if environ is None else environ
    own, client = client_settings(location.scheme, options)
    retry: Any = {
        "max_retries": client.pop("max_retries"),
        "retry_timeout": client.pop("retry_timeout"),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    if location.scheme == "s3":
        return _connect_s3(location, own, client, retry, environ)
    require_leave(location, options)
    return from_url(location.root, config=own, client_options=client, retry_config=retry), False


def _connect_s3(
    location: StoreLocation,
    own: Any,
    client: Any,
    retry: Any,
    environ: Mapping[str, str],
) -> tuple[ObjectStore, bool]:
    bucket = location.root.partition("://")[2]
    given = own.get("endpoint") or next(
        (environ[name] for name in _ENDPOINT_VARIABLES if environ.get(name)), None
    )
    path_style = own.pop("path_style", given is not None or "." in bucket)
    own["virtual_hosted_style_request"] = not path_style
    if given is not None:
        if "://" not in given:
            given = f"https://{given}"
        client["allow_http"] = given.startswith("http://")
        scheme, _, host = given.rstrip("/").partition("://")
        own["endpoint"] = f"{scheme}://{host}" if path_style else f"{scheme}://{bucket}.{host}"
    store = S3Store(bucket, config=own, client_options=client, retry_config=retry)
    return store, given is not None and not given.rstrip("/").endswith(".amazonaws.com")
