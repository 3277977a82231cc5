# SPDX-License-Identifier: Apache-2.0
"""Types of columns: mapping of source types to Paimon types, and conversion of values."""
