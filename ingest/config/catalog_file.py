# SPDX-License-Identifier: Apache-2.0
"""Catalogs by a file: a YAML map of the options of a catalog, `warehouse` among them.

metastore: jdbc
uri: jdbc:postgresql://catalog-db:5432/paimon
jdbc.user: paimon
jdbc.password: ${file:/run/secrets/catalog}
warehouse: s3://lake/warehouse
"""

import os
from collections.abc import Mapping

from ingest.config.settings_sources import interpolate, read_document
from storage.catalog.catalog import Catalog
from storage.errors import InvalidOptionError

__all__ = ["open_catalog", "read_catalog_file"]

_SUFFIXES = (".yaml", ".yml")


def open_catalog(location: str, options: Mapping[str, str] | None = None) -> Catalog:
    """Open a catalog.

    Args:
        location: a warehouse, or the path of a YAML file with the options of a catalog.
        options: of the store and the catalog, over those of the file.

    Raises:
        InvalidOptionError: the file is no map of options, or an option is unknown.
        NotFoundError: there is no such file.
    """
    given = dict(options or {})
    if location.endswith(_SUFFIXES):
        given = {**read_catalog_file(location), **given}
        location = given.pop("warehouse", "")
    return Catalog.open(location, given)


def read_catalog_file(path: str) -> dict[str, str]:
    """The options in a file; nested maps are dotted keys, `${NAME}` and `${file:}` are replaced.

    Raises:
        InvalidOptionError: it is no map of texts, or a reference cannot be resolved.
        NotFoundError: there is no such file.
    """
    document = interpolate(read_document(path), os.environ)
    options: dict[str, str] = {}
    _flatten(document, "", options)
    return options


def _flatten(value: object, key: str, options: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _flatten(inner, f"{key}.{name}" if key else str(name), options)
    elif isinstance(value, bool):
        options[key] = str(value).lower()
    elif isinstance(value, str | int | float):
        options[key] = str(value)
    else:
        raise InvalidOptionError("an option of a catalog is not a text", key=key, value=value)
