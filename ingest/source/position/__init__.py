# SPDX-License-Identifier: Apache-2.0
"""Positions of changes in their source: the order of rows under `source.ordering: source`."""
