"""Messages on a queue: fields, validation of puts, records in a store, and the view of selectors."""
