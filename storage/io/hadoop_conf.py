# SPDX-License-Identifier: Apache-2.0
"""Configuration files of Hadoop and Hive: XML with names and values."""

import pathlib
from xml.etree import ElementTree

from storage.errors import InvalidOptionError


def site_properties(directory: str, *names: str) -> dict[str, str]:
    """Properties of the files of a configuration directory; later files win, missing ones do not.

    Raises:
        InvalidOptionError: a file is not XML.
    """
    properties: dict[str, str] = {}
    for name in names:
        path = pathlib.Path(directory, name)
        if not path.is_file():
            continue
        try:
            entries = ElementTree.parse(path).getroot().iter("property")
        except ElementTree.ParseError as error:
            raise InvalidOptionError(
                "a file of the Hadoop configuration is not XML", detail=str(error), path=str(path)
            ) from error
        for entry in entries:
            key = entry.findtext("name", "").strip()
            properties[key] = entry.findtext("value", "").strip()
    return properties
