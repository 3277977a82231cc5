# SPDX-License-Identifier: Apache-2.0
"""The settings of a pipeline: declarations, loading, validation."""
