# SPDX-License-Identifier: Apache-2.0
"""Row-level changes of a table: reading them, and later producing them."""
