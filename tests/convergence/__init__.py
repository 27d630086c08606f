"""Law 1 as a machine: events of two sources, under policies, specs and protection that change, delivered in every
disorder to real stores by committers that race and crash, with persons who are erased and come back, letters that are
replayed and stored values that are sealed meanwhile, end in the state of one tidy delivery of what counts.

`machine` is the machine, `sites` what it does to each store, `ways` how changes come there, `rest` what must hold when
all is done, `ledger` what must count, `expected` what some of it must show, `events` what is published.
The long run: `python -m tests.convergence --minutes 60`.
"""
