# SPDX-License-Identifier: Apache-2.0
"""Catalogs: databases, tables and views by name."""
