"""This machine: cores, memory, devices and the compiler."""
