"""Topic strings and wildcard filters, compiled to the same predicates as selectors.

A topic string is levels separated by ``/``. In a filter ``+`` is any one level and ``#`` any number of
levels, also none; either stands for whole levels, ``#`` in any place. A filter becomes literals over *level
properties* that are derived from the topic string, so that ``flights/JFK/+`` is indexed like ``origin =
'JFK'`` and shares access keys with the selector beside it:

==================  ==================================================
``@topic``          the topic string itself; NULL without one
``@topic[i]``       its level i, from the front; NULL beyond its end
``@topic[-i]``      its level i from the end, the last one being 1
``@topic.levels``   how many levels it has, a long
==================  ==================================================

A message without a topic matches no filter, not even ``#``; a subscription without a filter takes every
topic.
"""

from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter
from selectroute.topics.levels import TOPIC, level_value

__all__ = ["TOPIC", "InvalidTopicFilterError", "TopicFilter", "level_value"]
