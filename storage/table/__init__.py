# SPDX-License-Identifier: Apache-2.0
"""Tables: commit, scan, read, expiry."""
