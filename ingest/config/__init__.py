# SPDX-License-Identifier: Apache-2.0
"""The settings of a pipeline: their table, where they come from, what is refused."""
