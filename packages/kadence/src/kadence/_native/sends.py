"""Found where sends.pyx is not compiled."""

from kadence._native import refuse

refuse(__name__)
