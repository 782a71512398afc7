"""Topic strings and wildcard filters, compiled to the same predicates as selectors.

A topic string consists of levels separated by ``/``. In a filter ``+`` is any one level and ``#``, at any
position, any number of levels, also none. A filter becomes literals over *level properties* that are derived
from the topic string, so that ``flights/JFK/+`` is indexed like ``origin = 'JFK'`` and shares access keys
with the subscription's selector:

==================  ==================================================
``@topic``          the topic string itself; NULL without one
``@topic[i]``       level i, from the front; NULL beyond the end
``@topic[-i]``      level i from the end, the last one being 1
``@topic.levels``   the number of levels, a long
==================  ==================================================

A message without a topic matches no filter, not even ``#``; a subscription without a filter matches every
topic.
"""

from selectroute.topics.filter import TOPIC, InvalidTopicFilterError, TopicFilter, level_value

__all__ = ["TOPIC", "InvalidTopicFilterError", "TopicFilter", "level_value"]
