"""Check that every `.pyc` file of this environment can be read.

Python does not recompile a module whose cached bytecode is truncated. Its import fails with an `EOFError`.
"""

import marshal
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

HEADER_BYTES = 16  # magic number, flags, and modification time with size, or a hash (PEP 552)


def unreadable_bytecode(folder: Path) -> Iterator[tuple[Path, Exception]]:
    """Yield each `.pyc` file below `folder` that `marshal` cannot load, with the error."""
    for path in sorted(folder.rglob("__pycache__/*.pyc")):
        try:
            marshal.loads(path.read_bytes()[HEADER_BYTES:])
        except (EOFError, TypeError, ValueError) as error:
            yield path, error


def main() -> int:
    """Print the damaged files of `site-packages` and return 1 if there are any."""
    damaged = list(unreadable_bytecode(Path(sysconfig.get_path("purelib"))))
    for path, error in damaged:
        print(f"{path}: {error}", file=sys.stderr)
    if damaged:
        print(f"{len(damaged)} .pyc files are damaged. Delete them; Python compiles them again.", file=sys.stderr)
    return 1 if damaged else 0


if __name__ == "__main__":
    sys.exit(main())
