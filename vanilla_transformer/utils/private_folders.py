"""Folders from which code may be loaded, since they are the running user's, and other users cannot write them."""

import os
import stat
from itertools import accumulate
from pathlib import Path

from vanilla_transformer.errors import UserFileError


def find_unsafe(path: Path, own: Path | None = None) -> str | None:
    """
    Return how another user could change a file or a folder, as the end of a sentence, or None.

    It must belong to the user or to root, and no other user may write it; the user's group, which has the user's name,
    may. What does not exist is safe. Windows has no such modes, and nothing is checked there.

    Args:
        own: A folder that this package makes, which is `path` or above it. From there on, each level must belong to
            the user, no group may write it, and it must be a folder or a regular file.
    """
    if not hasattr(os, "geteuid"):
        return None
    first = path if own is None else own
    for level in accumulate(path.relative_to(first).parts, Path.joinpath, initial=first):
        try:
            facts = level.stat() if own is None else level.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{level} cannot be read ({error.strerror})"
        if facts.st_uid != os.geteuid() and (own is not None or facts.st_uid != 0):
            return f"{level} belongs to user {facts.st_uid}"
        if not (stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)):
            return f"{level} is {'a link' if stat.S_ISLNK(facts.st_mode) else 'no file'}"
        by_group = facts.st_mode & stat.S_IWGRP and (own is not None or not _is_of_user_alone(level, facts.st_gid))
        if by_group or facts.st_mode & stat.S_IWOTH:
            mode = stat.S_IMODE(facts.st_mode)
            return f"other users can write {level} (mode {mode:o}): run `chmod -R go-w {first}`"
    return None


def create_private_folder(folder: Path, own: Path | None = None) -> str | None:
    """
    Create a folder, and the folders above it that are missing, for the running user alone, unless it is unsafe.

    Returns:
        See [`find_unsafe`].
    """
    unsafe = find_unsafe(folder, own)
    if unsafe is not None:
        return unsafe
    for each in (*reversed(folder.parents), folder):
        each.mkdir(mode=0o700, exist_ok=True)
    return find_unsafe(folder, own)  # which another user may have created meanwhile, such as in `/tmp`


def check_inductor_caches() -> None:
    """Create the folders in which inductor keeps code and finds it again, and check them."""
    temporary = os.environ.get("TMPDIR")
    if temporary and not (os.path.isdir(temporary) and os.access(temporary, os.W_OK)):
        raise UserFileError(
            f"TMPDIR must be a folder that you can write, but {temporary} is none. Create it, or unset TMPDIR."
        )
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    variables = {default_cache_dir(): "TMPDIR"}  # where compiled headers are kept, whatever the variables say
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        if os.environ.get(name):
            variables.setdefault(os.path.abspath(os.environ[name]), name)
    for folder, name in variables.items():
        unsafe = create_private_folder(Path(folder))
        if unsafe is not None:
            remedy = f"{name} can name another folder, which only you can write."
            raise UserFileError(f"Torch keeps compiled code in {folder}, but {unsafe}. {remedy}")


def _is_of_user_alone(path: Path, group_id: int) -> bool:
    """Tell whether the group of a path is the user's own, and no access list names other ones."""
    import grp  # not on Windows
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    if user.pw_gid != group_id or group.gr_name != user.pw_name or {*group.gr_mem} - {user.pw_name}:
        return False
    try:
        return not hasattr(os, "listxattr") or "system.posix_acl_access" not in os.listxattr(path)
    except OSError:  # file systems without access lists
        return True
