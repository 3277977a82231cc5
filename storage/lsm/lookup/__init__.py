# SPDX-License-Identifier: Apache-2.0
"""Finding the older rows of keys: a local copies of the files of the upper levels."""
