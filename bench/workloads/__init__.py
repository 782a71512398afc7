"""Rules and messages that are measured, the same in every language, and what must match.

``catalogue`` has every workload by its name. Each module says what its workload is: ``plain`` has Z and U,
and the stream of draws that all are made from; ``replies`` R, ``mixed`` M, ``alike`` D, ``growth`` G,
``texts`` S for parsers, and ``adversarial`` the rows with nothing to hold on to. Workload Q, messages on a
queue, is in `bench.queues`.

``oracle`` says what must match in Z and U, by sorting alone. ``conditions`` are selectors as data: their
text, and their truth in NumPy. No engine takes part in any of this.
"""
