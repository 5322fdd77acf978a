#!/usr/bin/python3
"""Runs a program of an unpacked image as a container's runtime does.

usage: contained.py ROOT PROGRAM [ARGUMENT ...]

Only the last part of PROGRAM counts: it is ROOT/usr/bin/PROGRAM that runs, with
ROOT as its root, as user 65532, without capabilities, with no_new_privs and the
image's environment. The caller is root and has made the mounts.
"""

import ctypes
import os
import sys

_USER = 65532
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38


def main():
    root, program, *arguments = sys.argv[1:]
    name = os.path.basename(program)
    libc = ctypes.CDLL(None, use_errno=True)

    def prctl(option, value):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        capability_count = int(file.read()) + 1
    os.chroot(root)
    os.chdir("/")
    for capability in range(capability_count):
        prctl(_PR_CAPBSET_DROP, capability)
    os.setgroups([])
    os.setresgid(_USER, _USER, _USER)
    os.setresuid(_USER, _USER, _USER)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    environment = {"PATH": "/usr/bin", "HOME": "/tmp"}
    if "XDG_STATE_HOME" in os.environ:
        environment["XDG_STATE_HOME"] = os.environ["XDG_STATE_HOME"]
    os.execve("/usr/bin/" + name, [name] + arguments, environment)


if __name__ == "__main__":
    main()
