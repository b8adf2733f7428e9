"""What spark-submit starts to run a pipeline's file; see `kadence_spark.pipeline.__main__`."""

import sys

if __name__ == "__main__":
    from kadence_spark.pipeline.__main__ import main

    sys.exit(main())
