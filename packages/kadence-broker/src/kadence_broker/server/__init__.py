"""The broker's side of the sockets: the loop, listeners, transports, sessions and connections. It knows no API's rules.

Everything here runs on the broker's one thread, except `Loop.call` and `Loop.stop`. `dispatch` stands above it and
takes whole requests.
"""
