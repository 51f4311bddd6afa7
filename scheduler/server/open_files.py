"""Limit of open files of this process."""

import resource

import structlog

log = structlog.get_logger(__name__)
_FILES_MAX = 65_536  # each connection is one; more would only take memory


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files towards the hard one; return it.

    Shells and container runtimes often start programs with 1,024 files, for programs that use
    select(2). Here each connection to kube-scheduler, to the API server and on a health port
    is a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    log.debug("limit of open files raised", before=soft, after=wanted)
    return wanted
