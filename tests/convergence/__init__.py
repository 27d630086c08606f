"""Law 1 as a machine: events of two sources, under policies, specs, scopes and protection that change, delivered in
every disorder to real stores by committers that race and crash, while servers are away and stores refuse, with persons
who are erased and come back, joined by pins and split by identity rules that change, by events that are taken back, dead
letters that are replayed and stored values that are sealed meanwhile, end in the state of one tidy delivery of what counts.

Along the data's way: `events` is what is published; `world` what all rules work on; `edits` of metadata, `deliveries`,
`outages` and `operations` are the rules; `flows` and `sites` are what is done to each store, made of `adapters`, disturbed by
`faults`, by `ways` from mapped outputs to the store; `machine` compares, with `rest` (what must hold when all is done),
`ledger` (what must count), `expected` and `protected` (what it must show, and not); `differences` are asked to people.
The long run: `python -m tests.convergence --minutes 60`.
"""
