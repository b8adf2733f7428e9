"""The one engine under consumer, producer and admin client; it knows none of them.

The request managers of a client decide what is sent; the network thread asks them, and moves bytes by `kadence.net`.
"""
