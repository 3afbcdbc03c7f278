"""Ids of tensors and storages, version counters, and leaves.

NOTE [ Ids ]
Ids are small integers, one counter per kind. A storage is identified by the address of its Python
object for as long as a weak reference to it is alive. A tensor is a view of a storage: offset,
shape, dtype. Without operators, gradients are not followed: all gradients of one shape and dtype
share an id, which saves a fifth of the cost. A node is identified by a tag in its ``metadata``,
which is destroyed with the node.
"""
