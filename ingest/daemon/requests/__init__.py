# SPDX-License-Identifier: Apache-2.0
"""What people ask of a running stream: files in the warehouse, handled between two batches."""
