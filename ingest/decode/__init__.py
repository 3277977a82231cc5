# SPDX-License-Identifier: Apache-2.0
"""From raw records to typed change batches."""
