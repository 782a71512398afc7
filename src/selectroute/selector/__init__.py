"""Stage 1: from text to a checked expression, and the meaning of that expression.

    str ─tokenize→ Token* ─parse, check→ Expr ─evaluate(message)→ TRUE | FALSE | UNKNOWN

A subscriber writes a selector, such as ``JMSType = 'car' AND color = 'blue' AND weight > 2500``. `tokens`
cuts the text into words, numbers and symbols with one compiled pattern; `numbers` reads Java's numeric
literals exactly, and `names` knows which characters Java allows in an identifier and which names IBM MQ
allows a property. `parser` builds an `ast` tree by operator precedence with explicit stacks: any depth of
nesting is fine, and a million selectors are read when a broker starts, so it is quick. Every node keeps its
span in the text. `check` rejects operations that are ill-typed for every message, such as ``'a' < 'b'``, and
`limits` rejects a selector that is too large before a tree is built.

An invalid text raises `InvalidSelectorError`: a kind from one table in `errors`, the exact span, the tokens
expected there, a hint, and the one edit that repairs the text, if there is one. No text makes this stage
raise anything else.

`evaluate` is the meaning. It reads like the standard, rule by rule, and is slow; every faster engine of
this package must agree with it on every selector and message. Values are Java's (`values`: eight types,
binary promotion, wrapping integers, floats of two widths) and byte strings, truth is Kleene's, and
NULL is the value of a missing property. Where a dialect says that "the complete selector is always false",
the operation is VOID, and so is every expression around it. `like` matches patterns without regular
expressions. `fields` holds the fields that have several names. `explain` shows the same evaluation as a tree
with each truth, value and type seen, and `sentences` gives the reasons.

`printer` writes a tree back as canonical text, and ``parse(to_text(tree)) == tree``. `dialect` is a record
of every difference between dialects; no other module knows which dialect it serves.

`Selector` ties these together for one text, and `Message` holds what selectors read, with its form on the
wire, which ``strict_json`` reads. The whole stage uses the standard library only.

Sentences cite the documents that say what a selector means as seeds: 000 is IBM MQ's *Message selectors in
JMS*, 001 WebSphere MQ Everyplace's *Message selectors*, 002 IBM MQ's *Message selector syntax*, 003 IBM MQ's
*Property name restrictions*, 004 chapter 3.8 of the JMS specification.

Read in this order: dialect, tokens, parser, ast, values, evaluate.
"""

from selectroute.selector.dialect import DIALECTS, JMS, Dialect, UnknownDialectError, dialect
from selectroute.selector.errors import KINDS, InvalidSelectorError, SelectRouteError
from selectroute.selector.evaluate import evaluate
from selectroute.selector.explain import Explanation, explain
from selectroute.selector.like import LikeOp, compile_like, like
from selectroute.selector.limits import Limits
from selectroute.selector.message import Message, MessageError
from selectroute.selector.names import PropertyNameError, check_property_names
from selectroute.selector.selector import Selector
from selectroute.selector.syntax.ast import Expr, children, postorder
from selectroute.selector.syntax.parser import parse
from selectroute.selector.syntax.printer import to_text
from selectroute.selector.syntax.source import Span
from selectroute.selector.values import Byte, Double, Float, Int, Long, Short, Truth, Value, coerce, type_name

__all__ = [
    "DIALECTS",
    "JMS",
    "KINDS",
    "Byte",
    "Dialect",
    "Double",
    "Explanation",
    "Expr",
    "Float",
    "Int",
    "InvalidSelectorError",
    "LikeOp",
    "Limits",
    "Long",
    "Message",
    "MessageError",
    "PropertyNameError",
    "SelectRouteError",
    "Selector",
    "Short",
    "Span",
    "Truth",
    "UnknownDialectError",
    "Value",
    "check_property_names",
    "children",
    "coerce",
    "compile_like",
    "dialect",
    "evaluate",
    "explain",
    "like",
    "parse",
    "postorder",
    "to_text",
    "type_name",
]
