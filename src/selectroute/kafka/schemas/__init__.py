"""Bodies that were written with a schema registry: Avro, Protobuf and JSON Schema, read at the bound paths.

A producer registers the schema of its bodies and writes the schema's id before each of them::

    body     0  0 0 0 7  …           magic byte, id, encoded datum   (Protobuf: the message's index between)
    header   __value_schema_id       1 and the 16 bytes of the schema's GUID; the body is the datum alone

`framing` finds the id; `registry` has the settings of a registry, fetches schemas and keeps one compiled
decoder for each id; `avro` and `protobuf` compile them. `bodies` reads the bodies of records, those of plain
JSON too, and is all that readers of records use.

The client library is imported when a registry is opened; without one nothing here needs it.
"""
