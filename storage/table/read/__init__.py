# SPDX-License-Identifier: Apache-2.0
"""From splits to rows."""
