"""The command `selectroute` for `spark-submit`: every option of `selectroute stream run`, on a cluster.

spark-submit --master spark://host:7077 streaming/submit.py stream run --input … --snapshots … --output …
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("selectroute", run_name="__main__")
