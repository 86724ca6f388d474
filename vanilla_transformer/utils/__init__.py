"""Helpers of all rooms: files, devices, imports, resources of the package, and the input of
users.
"""
