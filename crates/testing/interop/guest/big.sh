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

# Lengths and offsets beyond 2^32 bytes. What was never written reads as zeros.
step "a file whose end is at $FAR_MB MiB"
end=$(digest "$S/seed")
head -c 1048576 "$S/seed" >farfile
dd if="$S/seed" of=farfile bs=1M seek="$FAR_MB" conv=notrunc 2>/dev/null
sync
echo 3 >/proc/sys/vm/drop_caches
same far "$(size farfile)" $(((FAR_MB + 16) * 1048576))
same far "$(dd if=farfile bs=1M skip="$FAR_MB" 2>/dev/null | sha256sum | cut -d' ' -f1)" "$end"
same far "$(dd if=farfile bs=1M count=1 2>/dev/null | sha256sum | cut -d' ' -f1)" \
  "$(head -c 1048576 "$S/seed" | sha256sum | cut -d' ' -f1)"
zeros=$(head -c 1048576 /dev/zero | sha256sum | cut -d' ' -f1)
for at in 1 4095 4096 $((FAR_MB - 1)); do
  same "far at $at" "$(dd if=farfile bs=1M skip="$at" count=1 2>/dev/null | sha256sum | cut -d' ' -f1)" "$zeros"
done
dd if=/dev/null of=farfile bs=1M seek=4097 2>/dev/null
same "far, cut" "$(size farfile)" $((4097 * 1048576))
rm farfile
