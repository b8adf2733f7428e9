"""Request managers (C3): each decides what to send about one thing, and what the answers mean.

Sans-IO: no sockets, threads or clocks. Called by ``consumer.network`` only, on the network thread.
"""
