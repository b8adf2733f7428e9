"""``kadence groups why``: the reasons why a group lags, the worst first.

`asking` looks at a group, on the caller's thread; `watching` keeps what several looks say together; `reasons` makes
findings of that, and is pure, as `watching` is; `page` prints them. `command` carries the looks; `kadence top` uses the
same parts.
"""
