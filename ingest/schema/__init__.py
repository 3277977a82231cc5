# SPDX-License-Identifier: Apache-2.0
"""Schema evolution: decisions, changes of tables, history."""
