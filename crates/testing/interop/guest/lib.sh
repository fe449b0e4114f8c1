# Functions shared by the file scripts. $D is the directory under test, $S a scratch directory elsewhere.
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
# Synchronisation with another guest or the host: other WHAT waits for their signal, tell WHAT sends one.
other() { i=0; while [ ! -e "/out/$1" ]; do i=$((i + 1)); [ $i -lt 600 ] || { fail "no $1"; finish; }; sleep 0.1; done; }
# kafs drops a changed file's pages only if nothing else holds them (Linux 6.1, afs_zap_data). A page just written may be in
# a per-processor batch for the lists of pages, and then stays cached, whatever the server reports; also with OpenAFS's
# server. Memory compaction first empties those batches, and drops no page.
tell() { sync; echo 1 >/proc/sys/vm/compact_memory; : >"/out/$1"; }
finish() { if [ $failures = 0 ]; then echo "all steps passed"; exit 0; else echo "$failures failed"; exit 1; fi; }
