"""What Kadence's own tests stand on, offered to yours.

Nothing of the library imports this room. Thread: whichever thread the test runs on.
"""
