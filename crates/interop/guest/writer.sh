# Writes numbered records until it is stopped, each synced before it is announced: what was announced
# must be there whatever happens to the server.
cd "$D" || exit 1
echo "writer ready"
i=0
while [ ! -e /out/stop ]; do
    i=$((i + 1))
    if printf 'record %06d\n' $i >"record.$i.tmp" 2>/dev/null && sync "record.$i.tmp" 2>/dev/null \
        && mv "record.$i.tmp" "record.$i" 2>/dev/null; then
        echo "acknowledged $i"
    else
        sleep 0.2
    fi
done
echo "writer done"
