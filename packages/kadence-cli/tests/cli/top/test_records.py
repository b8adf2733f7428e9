"""Records and stacks in the letters that there are."""

from __future__ import annotations

from kadence import TopicPartition
from kadence_cli.top.local import Process
from kadence_cli.top.records import Records, command, commands_fit, record_rows, stack_rows

PARTITION = TopicPartition("flights", 3)


def test_a_record_takes_the_lines_that_it_needs() -> None:
    rows = record_rows(Records(PARTITION, 5, ("x" * 170, "y" * 9000)), "kadence consume", 80)
    texts = [row.cells[0] for row in rows]
    assert max(map(len, texts)) <= 80
    assert sum(text.count("x") for text in texts) == 170
    assert sum(text.count("y") for text in texts) == 2000
    assert [row.mark for row in rows].count("ok") == 2
    assert "the command shows all" in texts[-1]


def test_a_long_command_goes_on_below_as_a_shell_takes_it() -> None:
    long = f"   $ kadence consume flights:3 --from 7 -n 1 -b {'kafka:9092,' * 6}kafka:9092"
    made = commands_fit(["1. STOPS", long], 80)
    assert made[0] == "1. STOPS"
    assert all(each.endswith(" \\") for each in made[1:-1])
    assert " ".join(each.removesuffix("\\").strip() for each in made[1:]) == long.strip()


def test_the_command_is_of_the_place() -> None:
    assert command(PARTITION, 7) == "kadence consume flights:3 --from 7 -n 20"


def test_a_stall_is_shown_with_its_whole_stack() -> None:
    stall = {
        "since": 0.0,
        "ended": None,
        "thread": "MainThread",
        "records": {"flights-3": [5, 9]},
        "stack": '  File "/home/me/worker.py", line 7, in main\n    charge(card)',
    }
    texts = [row.cells[0] for row in stack_rows(Process("1", 1, {"stalls": [stall]}), 80)]
    assert "not ended yet, thread MainThread" in texts[0]
    assert "flights-3" in texts[1]
    assert texts[2:] == ['  File "/home/me/worker.py", line 7, in main', "    charge(card)"]
