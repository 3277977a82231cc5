# SPDX-License-Identifier: Apache-2.0
"""Types of columns: from the types of sources to Paimon types, and values of each."""
