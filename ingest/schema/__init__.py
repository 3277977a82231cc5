# SPDX-License-Identifier: Apache-2.0
"""Tables follow the schemas of their sources: what is decided, done, answered and noted."""
