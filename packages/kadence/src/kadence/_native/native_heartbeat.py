"""Found where native_heartbeat.pyx is not compiled."""

from kadence._native import refuse

refuse(__name__)
