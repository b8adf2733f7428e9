"""What a system such as Windows lacks, taken away from the interpreter that runs this text first."""

from __future__ import annotations

TAKE_AWAY = """
import mmap, os, select, selectors, signal, socket, sys

for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for place, names in (
    (os, ("fork", "register_at_fork", "eventfd", "pwrite", "pread", "O_DIRECTORY", "getuid")),
    (signal, ("pause", "pthread_sigmask")),
    (socket, ("AF_UNIX",)),
    (select, ("poll", "epoll")),
    (mmap, ("MAP_PRIVATE", "MAP_ANONYMOUS", "MAP_ANON", "MAP_SHARED")),
    (selectors, ("EpollSelector", "PollSelector")),
):
    for name in names:
        delattr(place, name)
selectors.DefaultSelector = selectors.SelectSelector

def lacking(self):
    raise AttributeError("Windows has no such method")

def pair(*given):
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]

socket.socketpair = pair
for name in ("sendmsg", "recvmsg"):
    setattr(socket.socket, name, property(lacking))
"""
