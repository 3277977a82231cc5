# SPDX-License-Identifier: Apache-2.0
"""Options of catalogs: which there are, and which belong to the object store.

Source: Paimon's `CatalogOptions`. Options that only tune a cache or a pool of Paimon's own are
accepted and have no effect here.
"""

import difflib
from collections.abc import Collection, Mapping

from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.options import values

METASTORE = "metastore"
WAREHOUSE = "warehouse"
URI = "uri"
LOCK_ENABLED = "lock.enabled"
MAX_SLEEP = "lock-check-max-sleep"
ACQUIRE_TIMEOUT = "lock-acquire-timeout"
SYNC_ALL_PROPERTIES = "sync-all-properties"
FORMAT_TABLES = "format-table.enabled"
TABLE_DEFAULT = "table-default."
"""Prefix of options that new tables get unless they set them."""

STORE_PREFIXES = ("s3.", "s3a.", "fs.s3a.", "gs.", "az.", "hdfs.", "hadoop-conf-dir", "store.")
"""Prefixes of options of object stores and HDFS."""

_COMMON = frozenset({METASTORE, WAREHOUSE, LOCK_ENABLED, MAX_SLEEP, ACQUIRE_TIMEOUT, FORMAT_TABLES})
_WITHOUT_EFFECT = frozenset(
    {
        "client-pool-size",
        "cache-enabled",
        "cache.expire-after-access",
        "cache.expire-after-write",
        "cache.partition.max-num",
        "cache.manifest.small-file-memory",
        "cache.manifest.small-file-threshold",
        "cache.manifest.max-memory",
        "cache.manifest.soft-values",
        "cache.snapshot.max-num-per-table",
        "cache.deletion-vectors.max-num",
        "file-io.allow-cache",
        "resolving-file-io.enabled",
    }
)
_UNSUPPORTED = {
    "lock.type": "the lock is that of the metastore: remove it",
    "case-sensitive": "remove it",
    "data-token.enabled": "give the credentials of the object store as its own options",
    "fs.allow-hadoop-fallback": "remove it",
}


def split_options(
    options: Mapping[str, str], catalog_keys: Collection[str] = (), prefixes: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Options of a catalog: its own, and those of the object store.

    Args:
        options: all.
        catalog_keys: keys of this kind of catalog, besides those of every kind.
        prefixes: of further keys of this kind.

    Raises:
        InvalidOptionError: an option is unknown.
        UnsupportedFeatureError: an option would change the behaviour and is not supported.
    """
    store = {key: value for key, value in options.items() if key.startswith(STORE_PREFIXES)}
    settings = {key: value for key, value in options.items() if key not in store}
    for key, value in settings.items():
        if key in catalog_keys or key in _COMMON or key in _WITHOUT_EFFECT:
            continue
        if key.startswith((TABLE_DEFAULT, *prefixes)):
            continue
        if key in _UNSUPPORTED:
            if value.strip().lower() == "false":
                continue
            raise UnsupportedFeatureError(
                "this option of a catalog is not supported",
                hint=_UNSUPPORTED[key],
                option=key,
                value=value,
            )
        near = difflib.get_close_matches(key, [*catalog_keys, *_COMMON], 1)
        hint = f"did you mean `{near[0]}`?" if near else "see docs/guides/catalogs.md"
        raise InvalidOptionError("unknown option for this kind of catalog", hint=hint, key=key)
    return settings, store


def table_properties(schema: TableSchema) -> dict[str, str]:
    """What Paimon stores of a table with `sync-all-properties`: options, keys, comment."""
    keys = {
        "primary-key": ",".join(schema.primary_keys),
        "partition": ",".join(schema.partition_keys),
        "bucket-key": ",".join(schema.bucket_keys),
    }
    comment = {} if schema.comment is None else {"comment": schema.comment}
    return {**schema.options, **comment, **{key: text for key, text in keys.items() if text}}


def flag(options: Mapping[str, str], key: str, default: bool) -> bool:
    """An option that is true or false.

    Raises:
        InvalidOptionError: it is neither.
    """
    try:
        return values.boolean(options[key]) if key in options else default
    except ValueError as error:
        raise InvalidOptionError(f"option is not {error}", key=key, value=options[key]) from error


def milliseconds(options: Mapping[str, str], key: str, default: str) -> int:
    """An option that is a duration [ms].

    Raises:
        InvalidOptionError: it is not valid.
    """
    text = options.get(key, default)
    try:
        return values.duration_ms(text)
    except ValueError as error:
        raise InvalidOptionError(f"option is not {error}", key=key, value=text) from error
