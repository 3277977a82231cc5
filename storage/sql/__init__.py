# SPDX-License-Identifier: Apache-2.0
"""SQL over catalogs: statements are parsed with sqlglot and queried with DuckDB over Arrow."""
