# SPDX-License-Identifier: Apache-2.0
"""Field ids of what is inside ARRAY, MAP and MULTISET. Source: FORMAT.md §7.1.

Only columns and fields of ROWs have an id of their own in the schema; elements, keys and values
have one that derives from the enclosing field's id and how many collections lie between.
"""

__all__ = ["key_id", "value_id"]

_ELEMENTS = 536_870_911
_PER_FIELD = 1024


def value_id(owner: int, depth: int) -> int:
    """Id of an array's element or a map's value.

    Args:
        owner: id of the enclosing column or ROW field.
        depth: 1 directly inside it, 2 in a collection inside a collection, and so on.
    """
    return _ELEMENTS + _PER_FIELD * owner + depth


def key_id(owner: int, depth: int) -> int:
    """Id of a map's key or a multiset's element; arguments as in `value_id`."""
    return _ELEMENTS - _PER_FIELD * owner - depth
