# SPDX-License-Identifier: Apache-2.0
"""Functions and operators of expressions, as kernels over columns."""
