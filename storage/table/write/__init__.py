# SPDX-License-Identifier: Apache-2.0
"""Writing rows of any partition and bucket."""
