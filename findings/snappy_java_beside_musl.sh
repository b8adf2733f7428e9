#!/usr/bin/env bash
# snappy-java 1.1.10.8 (in PySpark 4.3.0): once musl is installed beside glibc, Spark cannot write Parquet any more.
#
# Guess: the package musl, which compilers for static programs need, changes nothing for programs that use glibc.
# Seen: snappy-java takes a system for a musl system as soon as /lib/ld-musl-x86_64.so.1 exists. It then loads its
#       library for musl into a Java that runs on glibc, and each write of a Parquet file fails with
#       UnsatisfiedLinkError: libc.musl-x86_64.so.1. Spark's default compression of Parquet is snappy.
# Who meets it: whoever runs Spark on a machine on which somebody has installed musl-tools. Remove musl, or give Java
#       -Dorg.xerial.snappy.lib.path=FOLDER -Dorg.xerial.snappy.lib.name=libsnappyjava.so with the library for glibc.
# Debian's package musl is unpacked and laid over /usr/lib in a mount namespace of this script alone. It needs
# unshare, and the right to mount there; Debian, x86-64, Java 17.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   without musl: 10 rows written
#   with musl: UnsatisfiedLinkError: libc.musl-x86_64.so.1: cannot open shared object file
set -euo pipefail

[ "$(uname -m)" = x86_64 ] || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check pyspark==4.3.0 || exit 2
mkdir lib package
(cd package && apt-get download -q musl >/dev/null 2>&1 && dpkg -x musl_*.deb .) || exit 2
cp -P package/lib/ld-musl-x86_64.so.1 lib/ || exit 2
cp -r package/lib/x86_64-linux-musl lib/ || exit 2

cat >write.py <<'PY'
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    spark.range(10).write.parquet(sys.argv[2])
    print(f"{sys.argv[1]}: {spark.read.parquet(sys.argv[2]).count()} rows written")
except Exception as problem:
    known = "libc.musl-x86_64.so.1: cannot open shared object file"
    if known not in str(problem):
        raise
    print(f"{sys.argv[1]}: UnsatisfiedLinkError: {known}")
PY
if [ -e /lib/ld-musl-x86_64.so.1 ]; then
    echo "musl is installed on this machine, so the run without it is left out"
else
    venv/bin/python write.py "without musl" "$work/without" 2>/dev/null || exit 2
fi
output=$(unshare --mount --map-root-user sh -c '
    mount -t overlay overlay -o lowerdir="$1/lib:/usr/lib" /usr/lib || exit 2
    exec "$1/venv/bin/python" "$1/write.py" "with musl" "$1/with" 2>/dev/null' - "$work") || exit 2
echo "$output"
case $output in
    *UnsatisfiedLinkError*) ;;
    *) exit 1 ;;
esac
