# SPDX-License-Identifier: Apache-2.0
"""What procedures do, by subject; `storage.sql.procedures` lists and calls them."""
