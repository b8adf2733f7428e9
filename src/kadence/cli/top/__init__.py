"""``kadence top``: groups, their members, their lag and their rebalances, live.

`gathering` asks the brokers, on a thread of its own; `sampling` turns what it brings into rates, trends and events, and
is pure; `rows` makes cells of that; `app` draws them, and is the only file here, with `table`, that knows textual.
`local` reads what the consumers of this machine publish. `serve` shows the same in a browser.
"""
