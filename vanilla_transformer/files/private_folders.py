"""
Folders from which code may be loaded, since only the running user and root can change them and
their files.

Levels are checked from `/` down. Other users cannot replace an entry of a folder that they cannot
write, so the file that was checked is the one that is loaded. Windows has no such modes, and
nothing is checked there.
"""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path

from vanilla_transformer.errors import UserFileError

_MOST_LINKS = 40  # on the way to a file, as on Linux


def find_unsafe(path: Path, root: Path | None = None) -> str | None:
    """Return how another user could change a file or a folder, as the end of a sentence, or None.

    Each level must belong to the user or to root, and other users must not be able to write it, as
    OpenSSH requires it for its keys. They may write folders with the sticky bit, such as `/tmp`,
    and the user's own group, which has the user's name, may write all. Links may lead on, if all
    levels on their way are safe. A path that does not exist is safe.

    Args:
        root: A folder that this package makes, which is `path` or above it. From there on, each
            level must belong to the user, no group may write it, and it must be a folder or a
            regular file.
    """
    if not hasattr(os, "geteuid"):
        return None
    above = _levels(path if root is None else root.parent)
    problems: Iterator[str | None] = (_find_problem(level, None) for level in above)
    if root is not None:
        below = accumulate(path.relative_to(root).parts, Path.joinpath, initial=root)
        problems = chain(problems, (_find_problem(level, root) for level in below))
    try:
        return next(filter(None, problems), None)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror})"


def create_private_folder(folder: Path, root: Path | None = None) -> str | None:
    """Create a folder, and the folders above it that are missing, for the running user alone,
    unless it is unsafe.

    Returns:
        See [`find_unsafe`].
    """
    unsafe = find_unsafe(folder, root)
    if unsafe is not None:
        return unsafe
    for level in (*reversed(folder.parents), folder):
        level.mkdir(mode=0o700, exist_ok=True)
    # Another user may have created the folder meanwhile, such as in `/tmp`.
    return find_unsafe(folder, root)


def check_inductor_caches() -> None:
    """Create the folders in which inductor keeps code and finds it again, and check them."""
    temporary = os.environ.get("TMPDIR")
    if temporary and not (os.path.isdir(temporary) and os.access(temporary, os.W_OK)):
        raise UserFileError(
            f"TMPDIR must be a folder that you can write, but {temporary} is none. Create it, or "
            "unset TMPDIR."
        )
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # Compiled headers are kept there, whatever the variables say.
    variables = {default_cache_dir(): "TMPDIR"}
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        if os.environ.get(name):
            variables.setdefault(os.path.abspath(os.environ[name]), name)
    for folder, name in variables.items():
        unsafe = create_private_folder(Path(folder))
        if unsafe is not None:
            remedy = f"{name} can name another folder, which only you can write."
            raise UserFileError(f"Torch keeps compiled code in {folder}, but {unsafe}. {remedy}")


def _levels(path: Path) -> Iterator[Path]:
    """Yield the folders above `path` from `/` on, the path itself, and the levels of what links
    among them name.
    """
    parts = [*reversed(path.absolute().parts)]
    links, current = 0, Path()
    while parts:
        part = parts.pop()
        current = current.parent if part == ".." else current / part
        yield current
        if current.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, "too many links", str(path))
            parts += reversed(current.readlink().parts)
            current = current.parent


def is_own(path: Path) -> bool:
    """Return whether a file belongs to the user."""
    return not hasattr(os, "geteuid") or path.lstat().st_uid == os.geteuid()


def find_problem(path: Path) -> str | None:
    """Return how another user could have made or changed this one file or folder, or None; see
    [`find_unsafe`].
    """
    return _find_problem(path, path) if hasattr(os, "geteuid") else None


def _find_problem(path: Path, root: Path | None) -> str | None:
    facts = path.lstat()
    is_link, is_folder = stat.S_ISLNK(facts.st_mode), stat.S_ISDIR(facts.st_mode)
    if facts.st_uid != os.geteuid() and (root is not None or facts.st_uid != 0):
        return f"{path} belongs to user {facts.st_uid}"
    if root is not None and not (is_folder or stat.S_ISREG(facts.st_mode)):
        return f"{path} is {'a link' if is_link else 'no file'}"
    # The mode of a link means nothing.
    if is_link or (root is None and is_folder and facts.st_mode & stat.S_ISVTX):
        return None
    by_group = facts.st_mode & stat.S_IWGRP
    if by_group and root is None:
        by_group = not _is_of_user_alone(path, facts.st_gid)
    if not (by_group or facts.st_mode & stat.S_IWOTH):
        return None
    command = f"chmod go-w {path}" if root is None else f"chmod -R go-w {root}"
    return f"other users can write {path} (mode {stat.S_IMODE(facts.st_mode):o}): run `{command}`"


def _is_of_user_alone(path: Path, group_id: int) -> bool:
    """Tell whether the group of a path is the user's own, and no access list names other ones."""
    import grp  # not on Windows
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    if user.pw_gid != group_id or group.gr_name != user.pw_name:
        return False
    if {*group.gr_mem} - {user.pw_name}:
        return False
    try:
        return not hasattr(os, "listxattr") or "system.posix_acl_access" not in os.listxattr(path)
    except OSError:  # file systems without access lists
        return True
