"""Dead letters judged once more.

``letters`` reads them off the output folder, ``request`` is what a command asks for, ``replay`` does it, in
batches beside the stream.
"""
