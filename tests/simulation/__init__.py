"""Share groups under simulated faults: one seed is one run, the same every time.

The broker is the real one, from the frames that arrive to the bytes in its log files. Simulated
are:

    * `loop.py`: an event loop whose clock moves when it is told to
    * `disk.py`: the disk, what a crash leaves of it, and faults; `power.py`: the broker on it
    * `network.py`: lost, doubled and late requests and answers, and broken connections
    * `clients.py`: producers and members of share groups, which may do anything that members may do
    * `witness.py`, `shelf.py`: the expected state of each record, from requests and answers alone
    * `course.py`: the steps of a run; `run.py`: one run
    * `world.py`: the random choices; `ending.py`: the end of every run

`python -m tests.simulation --seed 7 --steps 2000` repeats a run; without `--seed` it tries new
ones.
"""
