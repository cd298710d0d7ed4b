"""Share groups under simulated bad luck: one seed, one run, the same every time.

The broker is the real one, from the frames that arrive to the bytes in its log files. What is
simulated is around it:

* `loop.py`: an event loop whose clock moves when it is told to
* `power.py`: the power goes off in the middle of a write, and what was in memory is gone
* `network.py`: requests and answers are lost, doubled and late, connections break
* `clients.py`: producers, and members of share groups that do whatever members may do
* `witness.py`, `shelf.py`: know for each record what has become of it, from requests and answers
  alone
* `world.py`: throws the dice; `ending.py`: in the end all must be well; `run.py`: one run from seed
  to result

`python -m tests.simulation --seed 7 --steps 2000` repeats a run; without `--seed` it tries new
ones.
"""
