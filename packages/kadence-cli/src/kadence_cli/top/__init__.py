"""``kadence top``: groups, their members, their lag and their rebalances, live.

`gathering` asks the brokers, on a thread of its own; `sampling` turns the answers into rates, trends and events, and is
pure; `rows` makes cells of these; `app` draws them. Only `app` and `table` use textual. `local` reads the published
state of consumers on this machine. `serve` shows the screen in a browser.
"""
