# SPDX-License-Identifier: Apache-2.0
"""What is removed from a table, and when: expiry, orphans, rollback."""
