"""Find a compiler, and explain its errors."""

import os
import re
import shutil


def find_compiler() -> str | None:
    """Return the path of the C++ compiler, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def explain_compiler_error(error: Exception) -> str | None:
    """Return a sentence about an error of inductor if the C++ compiler does not work, or None if it
    has not failed.
    """
    text = f"{type(error).__name__}: {error}"
    if not any(name in text for name in ("CppCompileError", "InvalidCxxCompiler")):
        return None
    lines = (text.partition("Output:\n")[2] or text).strip().splitlines()
    reason = next((line.strip() for line in lines if "error" in line.lower()), lines[0])
    reason = re.sub(r"^(\w+(Error|Exception|Compiler): )+", "", reason).rstrip(".")
    requirement = (
        f"The C++ compiler {find_compiler()} must compile what torch generates, but it "
        f"fails: {reason}"
    )
    return f"{requirement}. Repair it, or name another one in CXX."
