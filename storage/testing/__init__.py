# SPDX-License-Identifier: Apache-2.0
"""What must hold for tables, for tests and for checks of tables."""
