"""``kadence groups why``: the reasons why a group lags, the worst first.

`asking` takes a look at a group, on the caller's thread; `watching` combines several looks; `reasons` makes findings of
these (both are pure); `page` prints them. `command` runs the looks; `kadence top` uses the same parts.
"""
