# Writes numbered records until it is stopped, and syncs each before it announces it: announced records must exist whatever
# happens to the server. One descriptor writes and syncs: the kernel reports an error only once, and a shell that closes a
# redirected descriptor ignores it.
cd "$D" || exit 1
echo "writer ready"
i=0
while [ ! -e /out/stop ]; do
    i=$((i + 1))
    if error=$( (printf 'record %06d\n' $i | dd of="record.$i.tmp" conv=fsync status=none) 2>&1) \
        && error=$(mv "record.$i.tmp" "record.$i" 2>&1); then
        echo "acknowledged $i"
        [ -z "$READ_BACK" ] || { printf 'record %06d\n' $i >"$S/record"; read_back "record $i" "record.$i" "$S/record"; }
    else
        echo "refused $i: $error"
        sleep 0.2
    fi
done
wait # for a concurrent reader
echo "writer done"
