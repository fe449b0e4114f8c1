step "a file of $BIG_MB MiB"
cd "$D" || exit 1
dd if=/dev/urandom of="$S/seed" bs=1M count=16 2>/dev/null
i=0; while [ $i -lt $((BIG_MB / 16)) ]; do cat "$S/seed"; i=$((i + 1)); done >bigfile
sync
want=$(i=0; while [ $i -lt $((BIG_MB / 16)) ]; do cat "$S/seed"; i=$((i + 1)); done | sha256sum | cut -d' ' -f1)
echo 3 >/proc/sys/vm/drop_caches
same big "$(size bigfile)" $((BIG_MB * 1048576))
same big "$(digest bigfile)" "$want"
rm bigfile
