# SPDX-License-Identifier: Apache-2.0
"""CALL sys.…: which procedures there are, and calling one of them.

Source: Paimon's pages "Procedures" of Flink and of Spark. The declarations in `storage.sql.calls`
are also what SHOW PROCEDURES, DESCRIBE PROCEDURE and docs/reference/procedures.md show.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.sql.calls import maintenance, refused, versions
from storage.sql.calls.declaration import Procedure
from storage.sql.errors import locate, suggestion
from storage.sql.nodes import CallProcedure

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

__all__ = ["PROCEDURES", "REFUSED", "call", "describe_procedure", "find_procedure"]

PROCEDURES: Mapping[str, Procedure] = {
    one.name: one for one in (*maintenance.PROCEDURES, *versions.PROCEDURES)
}
"""By name, without `sys.`."""

REFUSED: Mapping[str, Procedure] = {one.name: one for one in refused.PROCEDURES}
"""Procedures of Paimon that are refused, and why."""

_ALIASES = {alias: one for one in PROCEDURES.values() for alias in one.aliases}


def call(session: "SqlSession", node: CallProcedure) -> pa.Table:
    """Call a procedure; its rows.

    Raises:
        NotFoundError: there is no such procedure.
        UnsupportedFeatureError: there is one in Paimon that is refused here.
        SqlError: an argument is unknown, missing or of another type.
        As the method of the table that the procedure calls.
    """
    try:
        procedure = find_procedure(node.args["name"])
    except (NotFoundError, UnsupportedFeatureError) as error:
        raise locate(error, node) from error
    bound = procedure.bind(session, node, node.args.get("arguments") or ())
    assert procedure.run is not None, "refused ones are not found"
    return procedure.run(bound)


def find_procedure(name: str) -> Procedure:
    """A procedure that can be called.

    Raises:
        NotFoundError: there is no such procedure.
        UnsupportedFeatureError: there is one in Paimon that is refused here.
    """
    name = name.lower().removeprefix("sys.")
    found = PROCEDURES.get(name) or _ALIASES.get(name)
    if found is not None:
        return found
    if name in REFUSED:
        raise UnsupportedFeatureError(
            "this procedure is not supported", hint=REFUSED[name].about, procedure=f"sys.{name}"
        )
    hint = suggestion(name, [*PROCEDURES, *_ALIASES], "SHOW PROCEDURES lists them")
    raise NotFoundError("there is no such procedure", hint=hint, procedure=f"sys.{name}")


def describe_procedure(name: str) -> pa.Table:
    """The arguments of a procedure: name, type, whether required, default, meaning.

    Raises:
        As `find_procedure`.
    """
    arguments = find_procedure(name).arguments
    return pa.table(
        {
            "argument": pa.array([one.name for one in arguments], pa.string()),
            "type": pa.array([one.type for one in arguments], pa.string()),
            "required": pa.array([one.required for one in arguments], pa.bool_()),
            "default": pa.array([one.default or None for one in arguments], pa.string()),
            "about": pa.array([one.about for one in arguments], pa.string()),
        }
    )
