# SPDX-License-Identifier: Apache-2.0
"""Bad records: error classes, queries, copies, limits."""
