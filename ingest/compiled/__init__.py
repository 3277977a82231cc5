# SPDX-License-Identifier: Apache-2.0
"""Functions that numba compiles: `loading` finds them, `cache` says where numba keeps them."""
