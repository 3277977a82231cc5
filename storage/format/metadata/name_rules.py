# SPDX-License-Identifier: Apache-2.0
"""Which names a database or a table may have. Pure.

Source: FORMAT.md §12.1. A name is a directory, `$` begins the name of a system table, `.` and `:`
part a table from its database and its branch, and the database `sys` is the format's own.
"""

import re

__all__ = ["FORBIDDEN", "SYSTEM_DATABASE", "name_refused"]

SYSTEM_DATABASE = "sys"
FORBIDDEN = re.compile(r"[/\\$.:\x00-\x1f\x7f]")


def name_refused(what: str, name: str) -> str:
    """Why a name is not allowed; "" = it is."""
    if not name.strip() or name != name.strip() or FORBIDDEN.search(name):
        return f"this name of a {what} is not allowed"
    if what == "database" and name == SYSTEM_DATABASE:
        return "this name of a database is the system's and not allowed"
    return ""
