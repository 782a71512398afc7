"""Stage 2: a checked expression becomes clauses, the working form of the index.

``normal_form.clauses_of`` turns an expression into a bounded OR of ANDs. Its leaves are *literals*: a
predicate together with the truth value that it must have, TRUE or FALSE. UNKNOWN satisfies neither.
Operators are never flipped: in the ``jms`` dialect a comparison of unlike types is FALSE, so ``NOT (a < 5)``
holds for a string ``a`` and ``a >= 5`` does not. With the polarity on the leaf, AND and OR are monotone and
two-valued, and the normal form keeps the exact meaning of the three-valued original.

A part that would grow beyond the bound stays whole, as a single `ExpressionTest` predicate with its reason:
the selector remains correct and merely costs an evaluation.

``analysis`` reports, without any message, how a selector will be indexed, and warns of probable mistakes.

``access`` extracts the equalities of a clause as *keys* for the index: a message has exactly one key for each
attribute, a literal has one or several.
"""
