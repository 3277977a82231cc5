# SPDX-License-Identifier: Apache-2.0
"""System tables: what Paimon shows of a table as `<table>$<name>`."""
