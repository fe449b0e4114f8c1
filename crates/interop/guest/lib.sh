# What the file scripts share. $D is the directory under test, $S a scratch directory elsewhere.
D=${D:-/mnt}
S=${S:-/tmp}
failures=0
step() { echo "step: $*"; }
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
# same WHAT GOT WANTED
same() { [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"; }
# refused WHAT COMMAND...: the command must fail
refused() { what=$1; shift; if "$@" 2>/dev/null; then fail "$what: was not refused"; fi; }
must() { "$@" || fail "failed: $*"; }
size() { stat -c %s "$1"; }
digest() { sha256sum <"$1" | cut -d' ' -f1; }
finish() { if [ $failures = 0 ]; then echo "all steps passed"; exit 0; else echo "$failures failed"; exit 1; fi; }
