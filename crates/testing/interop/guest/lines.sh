# Appends lines to a file and syncs each, until it is stopped; then all lines must exist, and nothing may have failed.
cd "$D" || exit 1
echo "client ready"
i=0
while [ ! -e /out/stop ]; do
    i=$((i + 1))
    { echo "line $i" >>lines; } 2>/tmp/error || fail "line $i: $(cat /tmp/error)"
    sync lines 2>/tmp/error || fail "sync of line $i: $(cat /tmp/error)"
    same "length after line $i" "$(wc -l <lines)" "$i"
    echo "synced $i"
done
echo 3 >/proc/sys/vm/drop_caches
same "lines" "$(digest lines)" "$(seq -f 'line %g' $i | sha256sum | cut -d' ' -f1)"
